# The public names of argrad: one line each, `name as name`. `__init__.py` reads this file.
from . import random as random
from ._checks import debug as debug
from ._errors import ArgradError as ArgradError
from ._errors import ArgradWarning as ArgradWarning
from ._errors import ConvergenceError as ConvergenceError
from ._errors import ConvergenceWarning as ConvergenceWarning
from ._errors import InputError as InputError
from ._errors import InputTypeError as InputTypeError
from ._errors import UnsupportedError as UnsupportedError
from .gumbel import TopK as TopK
from .gumbel import gumbel_max as gumbel_max
from .gumbel import gumbel_softmax as gumbel_softmax
from .gumbel import gumbel_topk as gumbel_topk
from .random import CounterRNG as CounterRNG

__version__: str

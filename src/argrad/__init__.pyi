# The public names of argrad: one line each, `name as name`. `__init__.py` reads this file.
from . import nn as nn
from . import random as random
from . import schedules as schedules
from . import testing as testing
from ._checks import debug as debug
from ._errors import ArgradError as ArgradError
from ._errors import ArgradWarning as ArgradWarning
from ._errors import ConvergenceError as ConvergenceError
from ._errors import ConvergenceWarning as ConvergenceWarning
from ._errors import InputError as InputError
from ._errors import InputTypeError as InputTypeError
from ._errors import UnsupportedError as UnsupportedError
from .cite import cite as cite
from .conditional_gumbel import gumbel_given_max as gumbel_given_max
from .conditional_gumbel import gumbel_posterior as gumbel_posterior
from .conditional_gumbel import truncated_gumbel as truncated_gumbel
from .gumbel import TopK as TopK
from .gumbel import gumbel_max as gumbel_max
from .gumbel import gumbel_softmax as gumbel_softmax
from .gumbel import gumbel_topk as gumbel_topk
from .noise import Gumbel as Gumbel
from .noise import Logistic as Logistic
from .noise import NegExponential as NegExponential
from .noise import NoNoise as NoNoise
from .noise import Noise as Noise
from .noise import Normal as Normal
from .noise import SumOfGamma as SumOfGamma
from .random import CounterRNG as CounterRNG
from .relaxed import GumbelSoftmax as GumbelSoftmax
from .relaxed import RelaxedBits as RelaxedBits
from .relaxed import RelaxedOneHot as RelaxedOneHot

__version__: str

"""The playground: a page that shows how discrete choices are drawn, relaxed and differentiated.

`page.py` puts the page together from `page/`, `server.py` serves it on this machine, and `answers.py` computes
with the library what the page computes in the browser. `argrad play` starts it.
"""

LINES = ()

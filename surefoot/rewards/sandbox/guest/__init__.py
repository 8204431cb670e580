"""What runs inside the sandbox: the standard library only, sent as source text to an interpreter that has nothing else.

The zygote (:mod:`zygote`) forks a supervisor per program (:mod:`supervise`), which forks the program (:mod:`program`)
and, where a test suite has code of its own, the tests (:mod:`checker`). Each is confined by :mod:`confine`.
"""

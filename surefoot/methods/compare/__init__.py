"""``surefoot compare``: several algorithms, several seeds, one base configuration, and an honest table.

``experiment`` reads what is to be compared, ``schedule`` runs what is not done yet, ``results`` reads the finished runs and
compares them, ``sentences`` says in words what came out.
"""

"""Programs with assertions about them, in the forms that people write. What each is worth is for Python to say."""

CLASSES = '''
import collections, enum, dataclasses, typing, functools
class Stack:
    """A stack."""
    kind = "lifo"
    made = 0
    def __init__(self, items=()):
        self.items = list(items); Stack.made += 1
    def push(self, x): self.items.append(x); return self
    def pop(self):
        if not self.items: raise IndexError("pop from an empty stack")
        return self.items.pop()
    @property
    def top(self): return self.items[-1] if self.items else None
    @classmethod
    def of(cls, *items): return cls(items)
    @staticmethod
    def twice(x): return 2 * x
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, i): return self.items[i]
    def __setitem__(self, i, x): self.items[i] = x
    def __contains__(self, x): return x in self.items
    def __repr__(self): return f"Stack({self.items})"
    def __bool__(self): return bool(self.items)
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __eq__(self, o): return isinstance(o, Vector) and (self.x, self.y) == (o.x, o.y)
    def __hash__(self): return hash((self.x, self.y))
    def __add__(self, o): return Vector(self.x + o.x, self.y + o.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __matmul__(self, o): return self.x * o.x + self.y * o.y
    def __neg__(self): return Vector(-self.x, -self.y)
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __lt__(self, o): return abs(self) < abs(o)
    def __call__(self, k): return self * k
@dataclasses.dataclass(order=True, frozen=True)
class Point:
    x: int
    y: int = 0
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
Pair = collections.namedtuple("Pair", "left right")
class Broke(ValueError):
    def __init__(self, code): super().__init__(f"broke {code}"); self.code = code
def fail(code): raise Broke(code)
class Animal:
    def speak(self): raise NotImplementedError
class Dog(Animal):
    def speak(self): return "woof"
class Managed:
    log = []
    def __enter__(self): self.log.append("in"); return self
    def __exit__(self, *error): self.log.append("out"); return error[0] is KeyError
class Hidden(list):
    def push(self, x): self.append(x)
class Trie:
    def __init__(self): self.words = set()
    def insert(self, w): self.words.add(w)
    def __contains__(self, w): return w in self.words
'''
FUNCTIONS = """
import asyncio, collections, decimal, fractions, functools, datetime, math
flag, ANSWER, NAMES, TABLE, NOTHING, PI = False, 42, ["a", "b"], {"a": 1}, None, 3.14
counter = 0
def bump():
    global counter
    counter += 1
    return counter
def add(a, b=1, *rest, **more): return a + b + sum(rest) + sum(more.values())
def sort(items): items.sort()
def clear(table): table.clear()
def rotate(m): m[:] = [list(row) for row in zip(*m[::-1])]
def same(x): return x
def count(n):
    for i in range(n): yield i
def endless():
    n = 0
    while True:
        yield n
        n += 1
def adder(n): return lambda x: x + n
def apply(f, *x): return f(*x)
def twice(f): return lambda *a: f(f(*a))
def memo(f):
    seen = {}
    @functools.wraps(f)
    def inner(*a):
        if a not in seen: seen[a] = f(*a)
        return seen[a]
    return inner
def grow(x, to=[]):
    to.append(x)
    return to
def stop(x): raise StopIteration
def divide(a, b): return a / b
def check(x): assert x > 0, "must be positive"
def leave(): raise SystemExit(3)
def words(s): return collections.Counter(s.split())
def half(x): return fractions.Fraction(x, 2)
def money(x): return decimal.Decimal(x)
def day(): return datetime.date(2024, 2, 29)
async def later(x):
    await asyncio.sleep(0)
    return 2 * x
def unique(x): return set(x)
def group(x):
    found = collections.defaultdict(list)
    for one in x: found[len(one)].append(one)
    return found
def keep(items):
    def more(x): items.append(x)
    return more
def ones(n): return [[0] * n] * n
"""
CASES: list[tuple[str, str]] = [
    (FUNCTIONS, one)
    for one in r"""
assert flag
assert not flag
assert flag is False
assert ANSWER == 42
assert ANSWER == 43
assert isinstance(ANSWER, int)
assert type(ANSWER) is int
assert NAMES == ["a", "b"] and NAMES[0] == "a" and len(NAMES) == 2
assert TABLE["a"] == 1 and "b" not in TABLE and TABLE.get("c", 7) == 7
assert NOTHING is None
assert NOTHING
assert abs(PI - 3.14159) < 0.01
assert callable(add)
assert callable(missing)
assert callable(ANSWER)
assert missing
assert add(1) == 2 and add(1, 2) == 3 and add(1, 2, 3, x=4) == 10
assert add(*[1, 2]) == 3 and add(**{"a": 1}) == 2
assert add.__name__ == "add"
x = [3, 1, 2]; sort(x); assert x == [1, 2, 3]
x = [3, 1, 2]; assert sort(x) is None and x[0] == 1
x = [3, 1, 2]; y = x; sort(x); assert y == [1, 2, 3] and x is y
x = {"a": 1}; clear(x); assert x == {}
m = [[1, 2], [3, 4]]; rotate(m); assert m == [[3, 1], [4, 2]]
x = [1]; assert same(x) is x
x = [1]; assert same(x) is not [1]
assert same(None) is None and same(True) is True
bump(); bump(); assert counter == 2
assert bump() == 1 and bump() == 2 and counter == 2
assert list(count(3)) == [0, 1, 2]
assert next(count(3)) == 0
g = count(2); assert [next(g), next(g), next(g, "end")] == [0, 1, "end"]
g = count(0); assert next(g)
assert sum(count(4)) == 6 and max(count(4)) == 3 and sorted(count(3), reverse=True) == [2, 1, 0]
assert [a for a, _ in zip(endless(), range(3))] == [0, 1, 2]
import itertools; assert list(itertools.islice(endless(), 2, 4)) == [2, 3]
import types; assert isinstance(count(1), types.GeneratorType)
from collections.abc import Iterator; assert isinstance(count(1), Iterator) and not isinstance(add, Iterator)
assert adder(3)(4) == 7
assert not callable(adder(3)(4))
assert apply(lambda x: x + 1, 3) == 4
assert apply(str, 3) == "3" and apply(len, [1, 2]) == 2 and apply(max, 1, 5) == 5
assert twice(lambda x: x * 3)(2) == 18
assert list(map(add, [1, 2], [3, 4])) == [4, 6]
assert sorted([3, 1, 2], key=lambda x: -add(x)) == [3, 2, 1]
calls = []\nf = memo(lambda x: calls.append(x) or x * 2)\nassert f(2) == f(2) == 4 and calls == [2]
@memo\ndef square(x):\n    return x * x\nassert square(3) == 9 and square.__name__ == "square"
assert grow(1) == [1] and grow(2) == [1, 2]
a = grow(1); b = grow(2); assert a is b
assert [f for f in (add, bump)] == [add, bump]
assert add == add and add is add and add != bump
import pytest\nwith pytest.raises(ZeroDivisionError):\n    divide(1, 0)
import pytest\nwith pytest.raises(ZeroDivisionError):\n    divide(1, 1)
import pytest\nwith pytest.raises(AssertionError, match="positive"):\n    check(-1)
import pytest\nassert divide(1, 3) == pytest.approx(0.3333333)
try:\n    divide(1, 0)\nexcept ZeroDivisionError as error:\n    assert str(error) == "division by zero"\nelse:\n    assert False
try:\n    divide(1, 1)\nexcept ZeroDivisionError:\n    pass\nelse:\n    assert False, "nothing raised"
try:\n    leave()\nexcept SystemExit as error:\n    assert error.code == 3\nelse:\n    assert False
try:\n    add("a", 1)\nexcept TypeError:\n    pass\nelse:\n    assert False
try:\n    add()\nexcept TypeError as error:\n    assert "argument" in str(error)\nelse:\n    assert False
assert words("a b a") == {"a": 2, "b": 1}
assert words("a b a").most_common(1) == [("a", 2)]
import collections; assert isinstance(words("a"), collections.Counter)
assert half(3) == 1.5 and half(3).numerator == 3
assert str(money("1.10")) == "1.10" and money("1.5") == 1.5
assert day().isoformat() == "2024-02-29" and day().year == 2024
import asyncio; assert asyncio.run(later(4)) == 8
async def both():\n    return [await later(1), await later(2)]\nimport asyncio\nassert asyncio.run(both()) == [2, 4]
import inspect; assert inspect.iscoroutinefunction(len) is False and inspect.isgenerator(count(1))
assert unique([1, 1, 2]) == {1, 2} and unique([1]) | {3} == {1, 3}
assert group(["a", "bb", "c"]) == {1: ["a", "c"], 2: ["bb"]} and group([])[5] == []
x = []; keep(x)(4); assert x == [4]
x = []; more = keep(x); x.append(1); more(2); assert x == [1, 2]
x = ones(2); x[0][0] = 1; assert x == [[1, 0], [1, 0]]
assert same(float("nan")) != same(float("nan"))
assert same((1, [2, {3: {4}}])) == (1, [2, {3: {4}}])
assert same(10 ** 5000) == 10 ** 5000
assert same(b"a") == b"a" and same(bytearray(b"a")) == bytearray(b"a") and same(1j) == 1j
assert same(range(3)) == range(3) and list(same(range(3))) == [0, 1, 2]
assert same(int) is int and same(ValueError) is ValueError
assert all(add(x, x) == 2 * x for x in range(50))
assert any(add(x) == 3 for x in range(5))
assert len({add(x) for x in range(5)}) == 5
from random import Random; r = Random(0); x = [r.random() for _ in range(9)]; y = sorted(x); sort(x); assert x == y
for a, b, c in [(1, 2, 3), (4, 5, 9)]:\n    assert add(a, b) == c
for a, b, c in [(1, 2, 3), (4, 5, 8)]:\n    assert add(a, b) == c
assert (lambda f: f(1, 2))(add) == 3
import unittest; unittest.TestCase().assertEqual(add(1, 2), 3)
import unittest; unittest.TestCase().assertRaises(ZeroDivisionError, divide, 1, 0)
import copy; assert copy.deepcopy(same([1, [2]])) == [1, [2]]
import json; assert json.dumps(same({"a": [1]})) == '{"a": [1]}'
assert f"{add(1, 2):03d}" == "003" and "%s" % add(1) == "2"
assert hasattr(add, "__call__") and not hasattr(add, "nothing") and getattr(add, "nothing", 5) == 5
assert add(1, 2) == 3, "message"; assert add(1, 2) == 4, "wrong"
class Node:\n    def __init__(self, v): self.v = v\nassert same(Node(3)).v == 3
class Node:\n    def __init__(self, v): self.v = v\nn = Node([1]); assert same(n) is n and apply(lambda m: m.v, n) is n.v
""".strip()
    .replace("\\n", "\x00")
    .split("\n")
]
CASES += [
    (CLASSES, one)
    for one in r"""
s = Stack(); s.push(1); assert s.pop() == 1
assert Stack([1, 2]).pop() == 2 and len(Stack([1, 2])) == 2
s = Stack(); s.push(1).push(2); assert s.items == [1, 2] and s.top == 2
s = Stack([1]); s.items.append(5); assert s.pop() == 5
assert list(Stack([1, 2])) == [1, 2] and 1 in Stack([1]) and 2 not in Stack([1])
s = Stack([1, 2]); s[0] = 9; assert s[0] == 9 and s[-1] == 2 and s[:] == [9, 2]
assert not Stack() and Stack([1])
assert bool(Stack())
assert repr(Stack([1])) == "Stack([1])" and f"{Stack([])}" == "Stack([])"
assert isinstance(Stack(), Stack) and type(Stack()) is Stack and not isinstance(3, Stack)
assert Stack.__name__ == "Stack" and Stack.__doc__ == "A stack." and Stack().__class__ is Stack
assert Stack.kind == "lifo" and Stack.of(1, 2).items == [1, 2] and Stack.twice(4) == 8
Stack(); Stack(); assert Stack.made == 2
s = Stack(); s.name = "x"; assert s.name == "x" and hasattr(s, "name") and not hasattr(s, "other")
s = Stack(); t = s; assert s is t and s == t and s != Stack()
import pytest\nwith pytest.raises(IndexError, match="empty"):\n    Stack().pop()
try:\n    Stack().pop()\nexcept IndexError:\n    pass\nelse:\n    raise AssertionError
try:\n    Stack().nothing\nexcept AttributeError:\n    pass\nelse:\n    assert False
assert issubclass(Stack, object) and callable(Stack) and not callable(Stack())
x = [1]; s = Stack(x); s.push(2); assert x == [1]
assert vars(Vector(1, 2)) == {"x": 1, "y": 2}
assert Vector(1, 2) == Vector(1, 2) and Vector(1, 2) != Vector(2, 1)
assert Vector(1, 2) == Vector(1, 3)
assert Vector(1, 2) + Vector(3, 4) == Vector(4, 6)
assert Vector(1, 2) * 2 == Vector(2, 4) == 2 * Vector(1, 2)
assert (Vector(1, 2) * 2).x == 2
assert Vector(1, 2) @ Vector(3, 4) == 11 and -Vector(1, 2) == Vector(-1, -2)
assert abs(Vector(3, 4)) == 5.0 and Vector(0, 1) < Vector(1, 1)
assert Vector(1, 2)(3).y == 6
assert len({Vector(1, 2), Vector(1, 2)}) == 1 and {Vector(1, 2): 5}[Vector(1, 2)] == 5
assert sorted([Vector(3, 4), Vector(0, 1)])[0].y == 1
assert [Vector(1, 2)] == [Vector(1, 2)] and Vector(1, 2) in [Vector(1, 2)]
v = Vector(1, 2); v.x += 4; assert v.x == 5
v = Vector(1, 2); v += Vector(1, 1); assert v == Vector(2, 3)
assert Vector(1, 2) != 3 and not Vector(1, 2) == (1, 2)
import copy; v = Vector(1, 2); w = copy.copy(v); w.x = 9; assert v.x == 1
assert Point(1) == Point(1, 0) and Point(1) < Point(2) and repr(Point(1)) == "Point(x=1, y=0)"
assert hash(Point(1)) == hash(Point(1)) and {Point(1)} == {Point(1)}
try:\n    Point(1).x = 3\nexcept AttributeError:\n    pass\nelse:\n    assert False
assert Colour.RED is Colour.RED and Colour(2) is Colour.BLUE and Colour["RED"].value == 1
assert Colour.RED != Colour.BLUE and Colour.RED.name == "RED" and [c.name for c in Colour] == ["RED", "BLUE"]
assert len(Colour) == 2 and isinstance(Colour.RED, Colour) and Colour.RED in Colour
assert Level.HIGH == 2 and Level.HIGH > Level.LOW and Level.HIGH.name == "HIGH" and isinstance(Level.LOW, int)
assert Level.HIGH + 1 == 3
p = Pair(1, 2); assert p == (1, 2) and p.left == 1 and p[1] == 2 and p._asdict() == {"left": 1, "right": 2}
left, right = Pair(1, 2); assert right == 2 and isinstance(Pair(1, 2), tuple) and repr(Pair(1, 2)) == "Pair(left=1, right=2)"
try:\n    fail(3)\nexcept Broke as error:\n    assert error.code == 3 and str(error) == "broke 3"
try:\n    fail(3)\nexcept ValueError as error:\n    assert error.args == ("broke 3",)
try:\n    fail(3)\nexcept KeyError:\n    pass
import pytest\nwith pytest.raises(Broke) as caught:\n    fail(4)\nassert caught.value.code == 4
assert issubclass(Broke, ValueError) and issubclass(Dog, Animal) and isinstance(Dog(), Animal)
assert Dog().speak() == "woof" and [type(a).__name__ for a in (Dog(), Animal())] == ["Dog", "Animal"]
import pytest\nwith pytest.raises(NotImplementedError):\n    Animal().speak()
with Managed() as m:\n    assert m.log == ["in"]\nassert Managed.log == ["in", "out"]
with Managed():\n    raise KeyError\nassert Managed.log[-1] == "out"
with Managed():\n    raise ValueError
h = Hidden([1]); h.push(2); assert h == [1, 2] and len(h) == 2 and isinstance(h, list) and h[1] == 2
h = Hidden([1]); h.append(3); assert sorted(h) == [1, 3] and h != [1] and h + [4] == [1, 3, 4]
t = Trie(); t.insert("a"); assert "a" in t and "b" not in t
t = Trie(); assert "a" in t
""".strip()
    .replace("\\n", "\x00")
    .split("\n")
]
CASES = [(program, test.replace("\x00", "\n")) for program, test in CASES]

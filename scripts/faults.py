"""
Draw faults to put into the code: small changes of the kinds that people make, chosen by a seed.

A fault replaces one piece of a module's text. `scripts/mutate.py` tries whether the tests see it.
"""

import ast
import difflib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["Fault", "draw_faults", "find_faults"]

_OTHER: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
# What is no behaviour of its own: texts with expressions inside have wrong positions before Python 3.12.
_SKIPPED = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Fault:
    """
    A change of a module.

    Args:
        path: The module, relative to the project.
        scope: The function or class that is changed.
        kind: What is done, "comparison" for example.
        lines: The lines whose execution shows that a test can see it.
        on_import: Whether they are executed when the module is imported, so that every test of it may see it.
        span: The bytes that are replaced.
        text: What stands there instead.
    """

    path: str
    scope: str
    kind: str
    lines: range
    on_import: bool
    span: tuple[int, int]
    text: str

    @property
    def place(self) -> str:
        """The module and what in it is changed, which stays the same when lines are added elsewhere."""
        return f"{self.path}: {self.scope}"

    def apply(self, source: bytes) -> bytes:
        """Return the module's text with the fault in it."""
        return source[: self.span[0]] + self.text.encode() + source[self.span[1] :]

    def diff(self, source: bytes) -> str:
        """Return the lines that change, old ones first."""
        old, new = source.decode().splitlines(), self.apply(source).decode().splitlines()
        lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
        return "\n".join(line for line in lines if not line.startswith("@@"))


def draw_faults(root: Path, packages: Sequence[str], count: int, seed: int) -> list[Fault]:
    """Draw `count` faults, or all if there are fewer; each package and each kind is as likely as the others."""
    drawn = random.Random(seed)
    buckets = defaultdict[tuple[str, str], list[Fault]](list)
    for package in packages:
        for path in sorted((root / package).rglob("*.py")) if (root / package).is_dir() else [root / package]:
            for fault in find_faults(path.relative_to(root).as_posix(), path.read_bytes()):
                buckets[package, fault.kind].append(fault)
    chosen: list[Fault] = []
    while buckets and len(chosen) < count:
        package = drawn.choice(sorted({package for package, _ in buckets}))
        key = package, drawn.choice(sorted(kind for other, kind in buckets if other == package))
        fault = buckets[key].pop(drawn.randrange(len(buckets[key])))
        if _changes_code(fault, (root / fault.path).read_bytes()):
            chosen.append(fault)
        if not buckets[key]:
            del buckets[key]
    return chosen


def find_faults(path: str, source: bytes) -> list[Fault]:
    """Return every fault that can be put into a module."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, scope: tuple[str, ...], lines: range, *, on_import: bool) -> Iterator[Fault]:
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            lines = _head(node)
        for kind, changed, text in _faults_of(node):
            new = text
            begin = starts[changed.lineno - 1] + changed.col_offset
            end = starts[(changed.end_lineno or 0) - 1] + (changed.end_col_offset or 0)
            if text.endswith("\n"):  # a statement before this one
                new, end = text + " " * changed.col_offset, begin
            name = ".".join(scope) or "module"
            span = begin, end
            yield Fault(path=path, scope=name, kind=kind, lines=lines, on_import=on_import, span=span, text=new)
        if isinstance(node, _Function | ast.ClassDef):
            scope = (*scope, node.name)
        for child in _children(node):
            # Values of arguments that are left out are computed when the function is defined.
            called = isinstance(node, _Function) and isinstance(child, ast.stmt)
            yield from walk(child, scope, lines, on_import=on_import and not called)

    return list(walk(ast.parse(source), (), range(0), on_import=True))


def _head(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> range:
    """Return the lines of a statement, without those of the statements in it."""
    body = getattr(node, "cases", None) or getattr(node, "body", None)
    begin = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
    if not body:
        return range(begin, (getattr(node, "end_lineno", None) or begin) + 1)
    first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
    return range(begin, max(first.lineno, begin + 1))


def _changes_code(fault: Fault, source: bytes) -> bool:
    changed = fault.apply(source)
    try:
        compile(changed, fault.path, "exec")
    except SyntaxError:
        return False
    return ast.dump(ast.parse(changed)) != _dump(source)


@lru_cache(4)
def _dump(source: bytes) -> str:
    return ast.dump(ast.parse(source))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what of a node is executed: no annotations, decorators or docstrings, and nothing for types alone."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None)
            yield from node.body
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign(value=value):
            yield from [value] if value is not None else []
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
            pass
        case ast.Assign(targets=[ast.Name("__all__")]):
            pass
        case ast.Call(func=ast.Name("cast")):
            yield from node.args[1:]
        case _ if not isinstance(node, _SKIPPED):
            yield from ast.iter_child_nodes(node)
        case _:
            pass


def _faults_of(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the kind of each fault of a node, what is replaced, and by what text; one that ends a line is added."""
    match node:
        case ast.Compare(ops=[op]):
            for other in _OTHER[type(op)]:
                yield "comparison", node, _text(ast.Compare(node.left, [other()], node.comparators))
        case ast.BoolOp(op=op, values=values):
            yield "and/or", node, _text(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
            for left_out in range(len(values)):
                rest = [value for number, value in enumerate(values) if number != left_out]
                yield "and/or", node, _text(rest[0] if len(rest) == 1 else ast.BoolOp(op, rest))
        case ast.Call(args=args, keywords=keywords):
            for number, keyword in enumerate(keywords):
                rest_of_keywords = keywords[:number] + keywords[number + 1 :]
                if keyword.arg is not None:
                    yield "argument", node, ast.unparse(ast.Call(node.func, args, rest_of_keywords))
                if keyword.arg in ("if_match", "etag") and not isinstance(keyword.value, ast.Constant):
                    yield "etag", keyword.value, '"*"'
            for number in range(len(args) - 1):
                swapped = [*args[:number], args[number + 1], args[number], *args[number + 2 :]]
                yield "argument", node, ast.unparse(ast.Call(node.func, swapped, keywords))
            if len(args) > 1:
                yield "argument", node, ast.unparse(ast.Call(node.func, args[:-1], keywords))
            yield from (("etag", arg, '"*"') for arg in args if isinstance(arg, ast.Attribute) and arg.attr == "etag")
        case ast.Constant(value=value):
            yield from (("constant", node, repr(other)) for other in _other_values(value))
        case ast.ExceptHandler(type=type_) if type_ is not None:
            yield "exception", type_, "ZeroDivisionError"
            for left_out in range(len(type_.elts) if isinstance(type_, ast.Tuple) else 0):
                assert isinstance(type_, ast.Tuple)
                rest = [each for number, each in enumerate(type_.elts) if number != left_out]
                yield "exception", type_, ast.unparse(ast.Tuple(rest))
        case ast.stmt():
            yield from _faults_of_statement(node)
        case _:
            pass
    if isinstance(node, ast.If | ast.While | ast.IfExp) and ast.unparse(node.test) != "TYPE_CHECKING":
        yield "negation", node.test, _text(ast.UnaryOp(ast.Not(), node.test))


def _faults_of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    match node:
        case ast.Expr(value=ast.Await()):
            yield "await", node, "pass"
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue() | ast.Break() | ast.AugAssign():
            yield "statement", node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete(targets=[ast.Subscript()]):
            yield "statement", node, "pass"
        case ast.If(test=test, body=body) if any(
            isinstance(each, ast.Await) for statement in body for each in ast.walk(statement)
        ):
            yield "await", test, "False"
        case _:
            pass
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name() as name)):
            yield "exception", name, "RuntimeError"
        case _:
            pass
    if isinstance(node, _Function | ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try):
        before = node.body[1:] if isinstance(node, _Function) else node.body
        for statement in before:
            placeholder = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ends = isinstance(statement, ast.Return | ast.Raise | ast.Pass | ast.Continue)
            if not (placeholder or ends or isinstance(statement, _Function | ast.ClassDef)):
                yield "early return", statement, "return\n"


def _other_values(value: object) -> list[object]:
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, value - 1] if value else [1]
        case str() if value and " " not in value:  # texts for people say what they say
            return ["", value + "x"]
        case bytes() if value:
            return [b""]
        case _:
            return []


def _text(expression: ast.expr) -> str:
    """Return its text in parentheses, so that it binds as before wherever it stands."""
    return f"({ast.unparse(expression)})"

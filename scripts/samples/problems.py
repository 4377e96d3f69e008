"""Make word_problems.jsonl from problems.txt: `question | expression | unit`, one a line.

The solution's steps are read off the expression, so that they cannot disagree with the answer.
"""

import ast
from fractions import Fraction
from pathlib import Path

TIMES, OVER = "\N{MULTIPLICATION SIGN}", "\N{DIVISION SIGN}"
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: TIMES, ast.Div: OVER}


def worked(node: ast.expr, steps: list[str]) -> Fraction:
    """The value of an arithmetic expression; each operation is appended to `steps`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if not isinstance(node, ast.BinOp):
        raise ValueError(f"{ast.unparse(node)} is not arithmetic")
    left, right = worked(node.left, steps), worked(node.right, steps)
    sign = SIGNS[type(node.op)]
    results = {"+": left + right, "-": left - right, TIMES: left * right}
    value = results[sign] if sign in results else left / right
    step = f"{left} {sign} {right} = {value}"
    if step not in steps:
        steps.append(step)
    return value


def problems() -> list[dict[str, object]]:
    """All word problems with their worked solutions."""
    rows = []
    lines = Path(__file__).with_name("problems.txt").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        question, expression, unit = line.split(" | ")
        steps: list[str] = []
        answer = worked(ast.parse(expression, mode="eval").body, steps)
        rows.append(
            {
                "id": f"problem-{number:03d}",
                "question": question,
                "answer": str(answer),
                "solution": f"{', then '.join(steps)}. The answer is {answer} {unit}.",
                "steps": len(steps),
                "expression": expression,
            }
        )
    return rows

"""A small part of scripts/kconfig/conf: bool, string, int, depends on A && B, default, source."""

import os
import re
import sys
from pathlib import Path

Symbol = dict[str, str]


def read(kconfig: Path, root: Path) -> dict[str, Symbol]:
    symbols: dict[str, Symbol] = {}
    for number, line in enumerate(kconfig.read_text().splitlines(), 1):
        words = line.split(None, 1)
        match words:
            case [] | ["#", *_]:
                pass
            case ["source", path]:
                symbols |= read(root / path.strip('"'), root)
            case ["config", name]:
                current = symbols[name] = {"type": "bool", "prompt": "", "depends": "", "default": ""}
            case ["bool" | "tristate" | "string" | "int" as kind, prompt]:
                current |= {"type": kind, "prompt": prompt}
            case ["def_bool", value]:
                current |= {"default": value}
            case ["default", value]:
                current |= {"default": value}
            case ["depends", condition]:
                current |= {"depends": condition.removeprefix("on ")}
            case _:
                sys.exit(f"{kconfig.relative_to(root)}:{number}: syntax error")
    return symbols


def options(path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in Path(path).read_text().splitlines():
        if match := re.match(r"CONFIG_(\w+)=(.*)$", line):
            found[match[1]] = match[2]
        elif match := re.match(r"# CONFIG_(\w+) is not set$", line):
            found[match[1]] = "n"
    return found


def main(goal: str, kconfig: str) -> None:
    target = os.environ["KCONFIG_CONFIG"]
    given_by = os.environ.get("KCONFIG_ALLCONFIG", "") if goal == "allnoconfig" else target
    given = options(given_by) if given_by and Path(given_by).exists() else {}
    values: dict[str, str] = {}
    lines = ["#", "# Automatically generated file; DO NOT EDIT."]
    lines += [f"# Linux/x86 {os.environ['KERNELVERSION']} Kernel Configuration", "#"]
    for name, symbol in read(Path(kconfig), Path(kconfig).parent).items():
        needs = symbol["depends"].split(" && ") if symbol["depends"] else []
        if any(values.get(need, "n") == "n" for need in needs):
            continue
        default = symbol["default"] or "n"
        if goal == "allnoconfig" and symbol["type"] in ("bool", "tristate") and symbol["prompt"]:
            default = "n"
        values[name] = given.get(name, default) if symbol["prompt"] else default
        if values[name] == "m" and (symbol["type"] != "tristate" or values.get("MODULES", "n") == "n"):
            values[name] = "y"
        lines.append(f"# CONFIG_{name} is not set" if values[name] == "n" else f"CONFIG_{name}={values[name]}")
    Path(target).write_text("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"#\n# configuration written to {target}\n#\n")


main(*sys.argv[1:])

"""A small part of scripts/kconfig/conf: bool, string, int, depends on A && B, default, source.

Neither pathlib nor re: to load them takes as long as all the rest, and every build does it twice.
"""

import os
import sys

Symbol = dict[str, str]


def lines_of(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read().splitlines()


def read(kconfig: str, root: str) -> dict[str, Symbol]:
    symbols: dict[str, Symbol] = {}
    for number, line in enumerate(lines_of(f"{root}/{kconfig}"), 1):
        words = line.split(None, 1)
        match words:
            case [] | ["#", *_]:
                pass
            case ["source", path]:
                symbols |= read(path.strip('"'), root)
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
                sys.exit(f"{kconfig}:{number}: syntax error")
    return symbols


def options(path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines_of(path):
        if line.startswith("CONFIG_"):
            name, _, value = line.removeprefix("CONFIG_").partition("=")
            found[name] = value
        elif line.startswith("# CONFIG_") and line.endswith(" is not set"):
            found[line.removeprefix("# CONFIG_").removesuffix(" is not set")] = "n"
    return found


def main(goal: str, kconfig: str) -> None:
    target = os.environ["KCONFIG_CONFIG"]
    given_by = os.environ.get("KCONFIG_ALLCONFIG", "") if goal == "allnoconfig" else target
    given = options(given_by) if given_by and os.path.exists(given_by) else {}  # noqa: PTH110 - see above
    values: dict[str, str] = {}
    changed: list[str] = []
    lines = ["#", "# Automatically generated file; DO NOT EDIT."]
    lines += [f"# Linux/x86 {os.environ['KERNELVERSION']} Kernel Configuration", "#"]
    root, _, top = kconfig.rpartition("/")
    for name, symbol in read(top, root).items():
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
        if symbol["prompt"] and values[name] != (symbol["default"] or "n"):
            changed.append(lines[-1])
    if goal == "savedefconfig":
        target, lines = "defconfig", changed
    with open(target, "w", encoding="utf-8") as file:  # noqa: PTH123 - see above
        file.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"#\n# configuration written to {target}\n#\n")


main(*sys.argv[1:])

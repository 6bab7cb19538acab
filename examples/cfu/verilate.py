"""Make verilated_cfu.o of the SystemVerilog of a copy of CFU-Playground.

python verilate.py CFU-Playground/proj/kws_micro_accel

The object has one global symbol, `cfu_execute`; the C++ libraries are inside. Needs
Verilator, g++ and objcopy.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = ("verilated.cpp", "verilated_threads.cpp")


def run(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def verilate(project: Path, output: Path) -> None:
    """Write the object of the module `Cfu` in a project's cfu.sv."""
    root = Path(run("verilator", "--getenv", "VERILATOR_ROOT").strip()) / "include"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        module = ("--cc", project / "cfu.sv", f"-I{project}", "--top-module", "Cfu")
        run("verilator", *module, "--prefix", "Vcfu", "--Mdir", made, "-Wno-fatal")
        sources = [HERE / "verilated_cfu.cpp", *sorted(made.glob("*.cpp"))]
        sources += [root / name for name in LIBRARY]
        objects = []
        for source in sources:
            objects.append(made / f"{source.stem}.o")
            flags = ("-O2", "-fPIC", f"-I{made}", f"-I{root}", f"-I{root / 'vltstd'}")
            run("g++", *flags, "-c", source, "-o", objects[-1])
        whole = made / "whole.o"
        libraries = ("-lstdc++", "-lgcc_eh", "-lgcc")
        run("g++", "-r", "-nostdlib", *objects, *libraries, "-o", whole)
        symbols = ("--keep-global-symbol=cfu_execute", "--strip-unneeded")
        run("objcopy", *symbols, whole, output)


if __name__ == "__main__":
    verilate(Path(sys.argv[1]), HERE / "verilated_cfu.o")

"""The Python environment of the generator and the peers: kept outside the clone, filled only when asked to."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from process import Failed

# Pinned, so that figures can be compared. All but the generator's fastavro are peers that are measured.
PACKAGES = ["fastavro==1.13.1", "chdb==4.4.0", "chdb-core==26.9.0", "pyiceberg==0.12.0", "pyarrow==26.0.1"]
# Only their jars are used, so what they depend on isn't needed.
JAR_PACKAGES = ["snowpark_connect_deps_iceberg==1.0.3", "pyspark==3.5.7"]


def default_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "iceberg-maintenance-benches"


class Installation:
    """`venv` below the work folder, or else the Python that runs this script."""

    def __init__(self, folder):
        self.folder = folder / "venv"

    @property
    def python(self):
        own = self.folder / "bin" / "python"
        return str(own) if own.exists() else sys.executable

    def install(self):
        """Makes the environment and installs every peer that comes as a package. Raises `Failed`."""
        if not (self.folder / "bin" / "python").exists():
            venv.create(self.folder, with_pip=True)
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in ([*pip, *PACKAGES], [*pip, "--no-deps", *JAR_PACKAGES]):
            if subprocess.run(command).returncode != 0:
                raise Failed(f"pip could not install {' '.join(command[6:])}")

    def version(self, package):
        """The installed version of a package, or None."""
        code = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
        done = subprocess.run([self.python, "-c", code, package], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    def package_folder(self, module):
        """Where an installed module lies, or None. It isn't imported."""
        code = "import importlib.util as u, json, sys; s = u.find_spec(sys.argv[1]); print(json.dumps(s and s.origin))"
        done = subprocess.run([self.python, "-c", code, module], capture_output=True, text=True)
        origin = json.loads(done.stdout) if done.returncode == 0 else None
        return Path(origin).parent if origin else None

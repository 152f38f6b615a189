from pathlib import Path

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyNsys2prv(PythonPackage):
    """NVIDIA Nsight Systems reports of any number of ranks as one Paraver trace, and where the time of the run went."""

    # The page of Paraver, which shows the traces.
    homepage = "https://tools.bsc.es/paraver"
    # The checkout that this recipe is in.
    git = Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("dask", default=False, description="Share the work over a Dask cluster")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-hatchling@1.26:", type="build")

    with default_args(type="run"):
        depends_on("py-adbc-driver-manager@1.3.0:")
        depends_on("py-adbc-driver-sqlite@1.3.0:")
        depends_on("py-jinja2@3.1.3:")
        depends_on("py-markdown-it-py@3.0.0:")
        depends_on("py-numba@0.61.0:")
        depends_on("py-numpy@2.0.0:")
        depends_on("py-polars@1.37.1:")
        depends_on("py-pyarrow@16.1.0:")
        # Compressions that folders of Parquet and Arrow tables come with.
        depends_on("arrow +parquet +snappy +zstd +lz4")
        depends_on("py-tqdm@4.66.1:")
        depends_on("py-typer@0.20.0:")
        depends_on("py-dask@2024.8.1: +distributed", when="+dask")

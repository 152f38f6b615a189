import platform

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyAdbcDriverSqlite(PythonPackage):
    """Driver of Arrow Database Connectivity for SQLite; its wheel has the compiled driver, which its source has not."""

    homepage = "https://arrow.apache.org/adbc/"

    license("Apache-2.0")

    wheels = {
        "x86_64": "fb51f307cb3c45aa5476c84eae83781079939832f35dd54611dbe6095627ca3d",
        "aarch64": "9fb6ff7adf05c01a9cd5ef5c62c926f6af6720f774e824829c7f648b801848af",
    }
    machine = platform.machine()
    if machine in wheels:
        version(
            "1.13.0",
            sha256=wheels[machine],
            expand=False,
            url="https://files.pythonhosted.org/packages/py3/a/adbc-driver-sqlite/"
            f"adbc_driver_sqlite-1.13.0-py3-none-manylinux_2_28_{machine}.whl",
        )

    conflicts("platform=darwin")
    conflicts("platform=windows")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-adbc-driver-manager@1.13.0:", type="run")

import platform

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyAdbcDriverManager(PythonPackage):
    """Driver manager of Arrow Database Connectivity, from its wheels: one for each version of Python."""

    homepage = "https://arrow.apache.org/adbc/"

    license("Apache-2.0")

    wheels = {
        ("x86_64", "11"): "2e5444a944e3c17c778601e35e83902e26d9571e77ca132b61f264c78346a06c",
        ("x86_64", "12"): "47e225d206d0d5f82d32d1ad0985ddf4984168479ecfcff21cb82fc5bb36ec5a",
        ("x86_64", "13"): "b81819bd35fb47b59757ab075041e326ec278ddaec33f75b6baadf11be1bc066",
        ("x86_64", "14"): "3ce8256a35e68420fab5e19830b6051578828c7774f10500abae7edc61ec0d3a",
        ("aarch64", "11"): "2da4174cec7d52269d144a847e60e6c80d7b28317764d204b436be4ed7fd294e",
        ("aarch64", "12"): "46776b55bddb98d37908bc4809a4567f6f897f97d1a79bf4ab0889bcab4ef585",
        ("aarch64", "13"): "82c90861896653c2cbc39f74f0261c0bb0c2862a2ceee60f29744df6e18da175",
        ("aarch64", "14"): "7699696b6388fb7e0e69b84627a28bdfe988d144d45649102859a0f07aeb0223",
    }
    platforms = {
        "x86_64": "manylinux_2_27_x86_64.manylinux_2_28_x86_64",
        "aarch64": "manylinux_2_26_aarch64.manylinux_2_28_aarch64",
    }
    for (machine, minor), sha256 in wheels.items():
        if machine == platform.machine():
            version(
                f"1.13.0-cp3{minor}",
                sha256=sha256,
                expand=False,
                url=f"https://files.pythonhosted.org/packages/cp3{minor}/a/adbc-driver-manager/"
                f"adbc_driver_manager-1.13.0-cp3{minor}-cp3{minor}-{platforms[machine]}.whl",
            )
            depends_on(f"python@3.{minor}", when=f"@1.13.0-cp3{minor}", type=("build", "run"))

    conflicts("platform=darwin")
    conflicts("platform=windows")

    depends_on("py-typing-extensions", type="run")

"""The packages to install; everything else about the project stands in pyproject.toml.

They are found, not listed: a new folder is installed without this file being touched. The migrations are added by hand,
because the folder `alembic` may not be a package, which would hide the library of that name.
"""

from setuptools import find_packages, setup

PACKAGES = find_packages(include=["engine*", "workbench*", "jobs*", "ui*"])

setup(
    packages=[*PACKAGES, "workbench.migrations", "workbench.migrations.versions"],
    package_dir={"workbench.migrations": "alembic"},
)

# The workbench in a container: `docker build --build-arg TORCH=cpu .` or, for NVIDIA GPUs, `--build-arg TORCH=cu130`.
# Never built by the project's tests: see docs/how_to/several_machines.md.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

ARG TORCH=cpu
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
WORKDIR /opt/workbench

# torch first: it is the largest layer, and changes least.
COPY constraints.txt ./
RUN pip install --constraint constraints.txt --extra-index-url https://download.pytorch.org/whl/${TORCH} torch

COPY pyproject.toml setup.py README.md LICENSE ./
COPY engine engine
COPY workbench workbench
COPY jobs jobs
COPY ui ui
COPY alembic alembic
COPY studies studies
RUN pip install --constraint constraints.txt --extra-index-url https://download.pytorch.org/whl/${TORCH} '.[all]' ./studies

# Not root: the home folder is private to the user who runs the workbench.
RUN useradd --create-home --uid 1000 workbench && install --directory --owner workbench --mode 0700 /data
USER workbench
WORKDIR /data
ENV WORKBENCH_HOME=/data/home
VOLUME /data

CMD ["workbench", "up", "--no-browser"]

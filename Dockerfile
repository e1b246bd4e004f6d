# syntax=docker/dockerfile:1.7
# One image for all Airflow services and for the CLI (`docker compose run --rm airflow-worker-cpu ocr2kb --help`).
# TORCH_VARIANT: `cpu` (small) or `cuda` (for GPU workers).

FROM python:3.11.14-slim-bookworm AS build
ARG TORCH_VARIANT=cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /src
COPY constraints.txt deploy/constraints-cluster.txt ./
# The heaviest layer, and the one that changes least
RUN version=$(sed -n 's/^torch==//p' constraints.txt) \
 && if [ "$TORCH_VARIANT" = cpu ]; then \
        pip install --index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple \
            --constraint constraints.txt "torch==$version+cpu"; \
    elif [ "$TORCH_VARIANT" = cuda ]; then \
        pip install --constraint constraints.txt "torch==$version"; \
    else \
        echo "TORCH_VARIANT must be cpu or cuda, not '$TORCH_VARIANT'" >&2; exit 1; \
    fi
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY ocr2_core ocr2_core
COPY structure_recovery structure_recovery
COPY knowledge_base knowledge_base
COPY ingestion ingestion
# Two of the packages bring two builds of OpenCV into the same folder: only the one without libGL may stay
RUN pip install --constraint constraints.txt --constraint constraints-cluster.txt ".[embedded,airflow,cluster,mcp]" \
 && pip uninstall --yes opencv-python \
 && pip install --no-deps --force-reinstall "opencv-python-headless==$(sed -n 's/^opencv-python-headless==//p' constraints.txt)" \
 && python -c "import cv2, torch, openvino, rapidocr, airflow"

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="ocr2-kb" org.opencontainers.image.licenses="Apache-2.0 AND AGPL-3.0-only"
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --home-dir /opt/airflow --no-create-home ocr2kb \
 && install --directory --owner=ocr2kb --group=ocr2kb --mode=0750 /opt/airflow /opt/airflow/auth /opt/airflow/logs \
        /opt/airflow/state /opt/models
COPY --from=build /opt/venv /opt/venv
COPY dags /opt/ocr2-kb/dags
COPY plugins /opt/ocr2-kb/plugins
COPY deploy/airflow_init.py /opt/ocr2-kb/deploy/airflow_init.py
COPY LICENSE NOTICE /opt/ocr2-kb/
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/ocr2-kb/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/ocr2-kb/plugins
USER ocr2kb
WORKDIR /opt/airflow
CMD ["ocr2kb", "--help"]

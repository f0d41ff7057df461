# The suite on a CPU: docker build -t helpers . ; docker run -it -v "$PWD:/work" helpers edit facts.csv
FROM python:3.12-slim
WORKDIR /suite
COPY . .
RUN python -m pip install --no-cache-dir --constraint constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
RUN python -m pip install --no-cache-dir --constraint constraints.txt .
WORKDIR /work
ENTRYPOINT ["helpers"]

# The two commands are `make demo` and `make test`; each sets up what it needs, in either order, at no cost when repeated.

# libvirt-python is compiled against the distribution's libvirt and Python, so it is the distribution's Python that is used.
PYTHON ?= /usr/bin/python3
VENV   := .venv
BIN    := $(VENV)/bin
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo)

PACKAGES := \
	python3-venv python3-dev gcc pkg-config libvirt-dev \
	libvirt-daemon libvirt-daemon-driver-qemu qemu-system-x86 qemu-utils \
	mmdebstrap uidmap e2fsprogs openssh-client debian-archive-keyring \
	make bc bison flex libelf-dev libssl-dev kmod cpio xz-utils ccache bubblewrap nbdkit \
	git-email libmailtools-perl \
	linux-source
# What only the unit tests need, since fio runs in the guest, the other end of SSH is another machine, and a host may be
# without systemd; and what only those of the page need.
FIO     := fio
SSHD    := openssh-server
SYSTEMD := systemd
BROWSER := chromium chromium-driver
# A second kernel for the articles, where the distribution has it.
NEWER := linux-source-6.12

.PHONY: help setup packages demo demo-fleet articles histories test test-all lint unit browser fleet vm docs bench calibrate clean

help:
	@echo 'make setup  install what bisector needs with apt, and a virtual environment in .venv; nothing else is changed'
	@echo 'make demo   find the commit that fixed dm-cache in a history made from the distribution'"'"'s kernel source'
	@echo 'make demo-fleet   the same on two hosts that take turns at this machine, through two kill -9 (half an hour)'
	@echo 'make articles   run the recorded sets of five articles again, scaled, and write a page of what held (90 minutes at most, and builds)'
	@echo 'make histories   bisect ten histories with known changes, drawn from SEED, and end with a table (three hours at most)'
	@echo 'make test   linters, unit tests, a page in a browser, several hosts, and the real thing in a virtual machine'
	@echo 'make test-all   the same, and what is slow and rare'
	@echo 'make lint | unit | browser | fleet | vm   each part of make test'
	@echo 'make docs   write the generated parts of docs/ again'
	@echo 'make bench  what the tool itself costs'
	@echo 'make calibrate   whether the search is as good as it says, in 150,000 made-up searches (hours)'
	@echo 'make clean  forget the virtual environment (caches of kernels and images stay; before it: bisector cache clear)'

setup: packages $(VENV)/installed

# apt is asked only for what is missing, so a second run costs a dpkg query and works offline.
packages:
	@missing=$$(for package in $(PACKAGES); do \
		dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; done); \
	if [ -n "$$missing" ]; then \
		echo "installing:" $$missing; \
		$(SUDO) apt-get update -q && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; \
	fi
# As root, libvirt's QEMU driver does not open without this user. Its package is libvirt-daemon-system, which brings a
# daemon, a network and a firewall that nobody asked for; number and home are that package's own.
	@getent passwd libvirt-qemu >/dev/null || { \
		getent group libvirt-qemu >/dev/null || $(SUDO) groupadd --system --gid 64055 libvirt-qemu; \
		$(SUDO) useradd --system --uid 64055 --gid libvirt-qemu --home-dir /var/lib/libvirt --no-create-home \
			--shell /usr/sbin/nologin libvirt-qemu; \
	}

# libvirt's bindings must not be newer than the library (libvirt.org/python.html), so the version is asked of pkg-config.
$(VENV)/installed: pyproject.toml | packages
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --upgrade pip setuptools wheel
	$(BIN)/pip install -q --disable-pip-version-check "libvirt-python==$$(pkg-config --modversion libvirt)" -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m scenarios.demo.run

demo-fleet: setup
	@$(MAKE) --no-print-directory packages PACKAGES='$(SSHD)'
	$(BIN)/python -m scenarios.demo.fleet

articles: setup
	@if apt-cache show $(NEWER) >/dev/null 2>&1; then $(MAKE) --no-print-directory packages PACKAGES='$(NEWER)'; fi
	$(BIN)/python -m scenarios.articles.run

# The edits are for this version, which a newer distribution has beside its own or not at all.
histories: setup
	@if apt-cache show linux-source-6.1 >/dev/null 2>&1; then $(MAKE) --no-print-directory packages PACKAGES=linux-source-6.1; fi
	$(BIN)/python -m scenarios.histories.run $(if $(SEED),--seed $(SEED))

test: lint unit browser fleet vm

# What is slow and rare is left out elsewhere.
NOT_RARE := and not rare
test-all: NOT_RARE :=
test-all: test

lint: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

# A worker a core: more of them only load the same modules again. Idle workers take tests from busy ones.
# The workers, and what they start, load the same modules: compiled once, whatever is set where this runs.
unit: export PYTHONDONTWRITEBYTECODE =
unit: setup
	@$(MAKE) --no-print-directory packages PACKAGES='$(FIO) $(SSHD) $(SYSTEMD)'
	tests/in_memory $(BIN)/pytest -n $$(nproc) --dist worksteal -m 'not vm and not browser and not fleet $(NOT_RARE)'

browser: setup
	@$(MAKE) --no-print-directory packages PACKAGES='$(BROWSER)'
	$(BIN)/pytest -m 'browser $(NOT_RARE)'

fleet: setup
	@$(MAKE) --no-print-directory packages PACKAGES='$(SSHD)'
	$(BIN)/pytest -n $$(nproc) --dist worksteal -m 'fleet $(NOT_RARE)' --durations=10

# First those whose measurements count, alone. For the others a measurement that was disturbed is as good, so that each
# core has one, as if it were a host of its own.
vm: setup
	$(BIN)/pytest -m 'vm and quiet $(NOT_RARE)' --durations=30 --durations-min=5
	$(BIN)/pytest -m 'vm and not quiet $(NOT_RARE)' --durations=30 --durations-min=5 \
		--dist loadfile --no-loadscope-reorder --tx "$$(nproc)*popen//python=tests/own_host $(BIN)/python"

docs: setup
	$(BIN)/python -m tests.docs.generate

bench: setup
	$(BIN)/python -m tests.bench_planning
	$(BIN)/python -m tests.bench_search
	$(BIN)/python -m tests.bench_report
	$(BIN)/python -m tests.bench_layout

calibrate: setup
	$(BIN)/python -m tests.calibrate

clean:
	rm -rf $(VENV) build *.egg-info

# Everything a newcomer runs. `make demo` shows it, `make test` proves it.
SHELL := bash
MARLINE_MPI_DIR ?= $(CURDIR)/.mpi
export MARLINE_MPI_DIR
TARGET := $(or $(CARGO_TARGET_DIR),target)
# `make build PROFILE=quick` compiles changed crates alone, for editing and testing.
PROFILE ?= release
# Three tests at once: most of them wait for a fault to begin or to end.
PYTEST := $(MARLINE_MPI_DIR)/tools/bin/python scripts/e2e -c tests/e2e/pytest.ini -n 3 --dist worksteal

.PHONY: test-packages test-old pictures portable deb rpm wheel dist recipes install uninstall deps build guided programs eager demo test space test-cargo check-aarch64 test-aarch64 test-e2e soak bench bench-loss \
	bench-blackhole bench-gap bench-unlike bench-auth bench-rails bench-sums bench-crowd bench-checksums bench-apps bench-smax bench-progress bench-bcast bench-together bench-rma bench-scale evaluation \
	detect mutations soak-seeds lint fuzz clean \
	miri miri-wire miri-proto miri-checksum miri-engine sanitize sanitize-address sanitize-thread

deps:
	scripts/install-deps

# What users get; the simulator's own command and the house rules are built where they run.
SHIPPED := -p marline-cli -p marline-provider -p marline-mpi-shim -p marline-collectives
build:
	cargo build --profile $(PROFILE) --locked $(SHIPPED) $(EXAMPLES)
	mkdir -p build/provider
	install -m 755 $(TARGET)/$(PROFILE)/libmarline_fi.so build/provider/libmarline-fi.so
	install -m 755 $(TARGET)/$(PROFILE)/libmarline_mpi.so build/provider/libmarline-mpi.so
	install -m 755 $(TARGET)/$(PROFILE)/libmarline_collectives.so build/provider/libmarline-collectives.so
	echo plain > build/provider/how

# Installs what `make build` built: as root with sudo, which needs no compiler.
PREFIX ?= /usr/local
install:
	scripts/install put $(TARGET)/$(PROFILE) "$(DESTDIR)" "$(PREFIX)"

uninstall:
	scripts/install remove "$(DESTDIR)" "$(PREFIX)"

# Packages in build/packages, and `make dist`: the sources with those of all crates, for builds
# offline. They hold what `make portable` builds: for glibc 2.28 or newer (Debian 10, RHEL 8), by
# Zig's linker, and for ARCH=aarch64 as well.
ARCH ?= $(shell uname -m)
export MARLINE_PORTABLE ?= $(abspath $(TARGET))/portable/$(ARCH)-unknown-linux-gnu/$(PROFILE)
portable:
	scripts/install-deps wheel
	PATH="$(MARLINE_MPI_DIR)/wheel/bin:$$PATH" cargo zigbuild --profile $(PROFILE) --locked \
		--target-dir $(TARGET)/portable --target $(ARCH)-unknown-linux-gnu.2.28 $(SHIPPED)

# The pages of a command for another machine are written by this machine's.
deb rpm wheel: portable $(if $(filter $(ARCH),$(shell uname -m)),,build)
	$(if $(filter $(ARCH),$(shell uname -m)),,MARLINE_GENERATE=$(TARGET)/$(PROFILE)/marline) \
		scripts/package $@ $(MARLINE_PORTABLE) build/packages

dist:
	scripts/package dist build/packages

# Recipes for Spack, EasyBuild and conda-forge in build/recipes, for the tarball of `make dist`, which
# is to be had below URL.
VERSION = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
URL ?= file://$(CURDIR)/build/packages
recipes: dist
	scripts/package recipes build/packages/marline-$(VERSION).tar.xz $(URL) build/recipes

# The provider guided by a profile of MPI jobs (what it gains: docs/user-guide.md).
guided: deps build programs
	built=$$(scripts/guided provider $(TARGET)) && \
		install -m 755 $$built build/provider/libmarline-fi.so && \
		case $$built in */guided/use/*) echo guided ;; *) echo plain ;; esac > build/provider/how

programs: deps
	$(MAKE) -s -C tests/programs all OUT=$(CURDIR)/build/programs MPI=$(MARLINE_MPI_DIR)

# What only the tests need is not installed for it.
demo:
	scripts/install-deps demo
	$(MAKE) build
	$(TARGET)/$(PROFILE)/marline demo --mpi $(MARLINE_MPI_DIR)/mpich --provider-dir build/provider

# Unit and property tests, then end to end; CI shows the closing lines of both. Linking what users get
# and the last test of a program use one core each, so they run side by side. (Ctrl-C does not reach
# what runs in the background.)
test: space deps
	mkdir -p build; setsid $(MAKE) eager >build/eager.log 2>&1 & eager=$$!; trap "kill -- -$$eager 2>/dev/null" EXIT; \
		$(MAKE) test-cargo; unit=$$?; \
		wait $$eager || { cat build/eager.log; exit 1; }; exit $$unit
	$(MAKE) test-e2e

# A full disk shows only after half an hour, as errors of the linker or of a test.
space:
	scripts/check-space $(TARGET)

test-cargo: deps check-aarch64 test-aarch64
	cargo test --workspace --locked --lib --bins --tests $(MISTAKES)

# With these features the simulator can make deliberate mistakes, which its tests must notice, and
# play the super-pipeline on a model of a machine. One build has both and all other tests.
MISTAKES := --features marline-sim/mutation,marline-sim/staged
mutations:
	cargo test --profile quick --locked -p marline-sim -p marline-proto $(MISTAKES) --test mutations

# The libraries that users get compile for aarch64, without warnings.
check-aarch64:
	scripts/aarch64 check $(TARGET)/aarch64

# The kernels for aarch64 give the same sums as all others, in an emulator.
test-aarch64:
	scripts/aarch64 test $(TARGET)/aarch64

# `make build` with the example that the tests count instructions of, and the strangers' toolbox: in a
# command of its own, all crates would be compiled once more, for executables only.
eager: EXAMPLES := -p marline-engine -p marline-strangers --lib --bins --example eager
eager: build

test-e2e: deps eager programs
	$(PYTEST) tests/e2e --cover -m "not soak and not packages and not old"

# The pictures of a report and of `marline top` in the documents.
pictures: deps build programs
	scripts/install-deps packages
	MARLINE_PICTURES_DIR=$(CURDIR)/docs $(subst -n 3 --dist worksteal,,$(PYTEST)) tests/e2e/test_pictures.py

# Jobs in which half of the ranks load the library of another revision.
OLD ?= HEAD
test-old: deps eager programs
	scripts/old-provider $(OLD) build/old-provider $(TARGET)/old
	MARLINE_OLD_PROVIDER_DIR=$(CURDIR)/build/old-provider $(PYTEST) tests/e2e -m old

# What is installed, and started by others than us: packages, launchers, batch systems.
test-packages: eager portable programs
	scripts/install-deps packages
	$(PYTEST) tests/e2e -m packages

soak: deps nightly eager programs
	PROPTEST_CASES=20000 MARLINE_CROWD=1024 cargo test --release --workspace --locked
	$(MAKE) detect
	$(PYTEST) tests/e2e -m "not packages and not old"
	$(MAKE) test-old
	$(MAKE) evaluation QUICK=1
	$(MAKE) fuzz SECONDS_EACH=60
	$(MAKE) miri
	$(MAKE) sanitize
	$(MAKE) soak-seeds

# A campaign of SEEDS simulated clusters of every kind, in parts: it goes on where its log ends, until
# all are done, one fails, or Ctrl-C.
SEEDS ?= 1000000
CAMPAIGN ?= bench/record/campaign.csv
soak-seeds:
	sim=$$(scripts/guided sim $(TARGET)) || exit; commit=$$(git rev-parse --short HEAD); \
		touch $(CAMPAIGN); mkdir -p build; \
		while awk -F, '{n += $$5 - $$4} END {exit n >= $(SEEDS)}' $(CAMPAIGN); do \
		for kind in "swarm --min-packets 5000" outages loss rails peers verbs native group; do \
			$$sim --profile $$kind --log $(CAMPAIGN) --more 2000 --commit $$commit --jobs $$(nproc) \
				--failures build/failed-seeds.txt || exit 1; \
		done; done

# How memory, packets, time and work grow up to 65,280 endpoints.
SCALE ?= bench/record/$(shell date +%F)-scale.csv
bench-scale:
	cargo build --release --locked -p marline-sim
	$(TARGET)/release/marline-sim --hosts 16 --scale 65536 > $(SCALE)
	bench/scale $(SCALE) --draw build/scale.svg

# Failure injection: millions of damaged packets; what each checksum missed, and what theory says.
detect:
	cargo run --release --locked -p marline-sim --example inject -- 100000 --csv build/detect.csv

# The speed that users can have: of the guided library, and the records say so.
bench: guided
	bench/run

bench-loss: guided
	bench/loss

bench-blackhole: guided
	bench/blackhole

bench-gap: deps build programs
	bench/gap

bench-unlike: deps build programs
	bench/unlike

bench-auth: deps build programs
	bench/auth

bench-rails: deps build programs
	bench/rails

bench-sums: deps build programs
	bench/sums
	bench/sums --busy

bench-crowd: deps build programs
	bench/crowd

bench-checksums: deps build programs
	cargo build --release --locked -p marline-checksum --example bench
	taskset -c 1 $(TARGET)/release/examples/bench --libraries crc64-nvme crc64-nh crc32c aes-lanes xxh3
	bench/checksums
	bench/checksums --cold
	bench/checksums --rate 10gbit

bench-apps: deps build programs
	bench/apps
	bench/apps --within 60

bench-smax: deps build programs
	bench/smax

bench-progress: deps build programs
	bench/progress

bench-bcast: deps build programs
	bench/bcast

bench-together: deps build programs
	bench/together

bench-rma: deps build programs
	bench/rma

# The papers' tables and figures beside peers, two hours at rest: docs/results.md. QUICK=1: a quarter of
# an hour, to build/evaluation.
evaluation: deps build programs
	python3 bench/evaluation $(if $(QUICK),--quick)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features marline-sim/staged --locked -- -D warnings
	bash -n packaging/slurm/task-prolog scripts/install scripts/install-deps scripts/check-space scripts/aarch64 scripts/guided scripts/old-provider .ci/run
	python3 -c "import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]" \
		bench/run bench/loss bench/blackhole bench/gap bench/unlike bench/auth bench/progress bench/smax bench/checksums \
		bench/apps bench/bcast bench/rma bench/crowd bench/netpipe bench/model bench/ablation bench/shipped bench/scale \
		bench/ranks \
		bench/*.py bench/evaluation/*.py scripts/e2e scripts/package tests/e2e/*.py

# The targets below want a nightly compiler: rustup toolchain install nightly --component miri,rust-src
NIGHTLY ?= +nightly
HOST := x86_64-unknown-linux-gnu
TARGETS ?= packet admission node operations address settings faults stats_page group group_packet
SECONDS_EACH ?= 300

# What fuzzers, Miri and sanitizers need is there.
nightly:
	cargo $(NIGHTLY) miri --version && cargo fuzz --version || { echo "missing: rustup toolchain install \
	nightly --component miri,rust-src && cargo install cargo-fuzz --locked" >&2; exit 1; }

# Grows the corpora under target/fuzz; what is worth keeping goes to fuzz/corpus (CONTRIBUTING).
fuzz:
	for t in $(TARGETS); do mkdir -p target/fuzz/corpus/$$t && \
		CARGO_PROFILE_RELEASE_LTO=off cargo $(NIGHTLY) fuzz run --features libfuzzer \
		--target-dir target/fuzz $$t target/fuzz/corpus/$$t fuzz/corpus/$$t -- \
		-max_total_time=$(SECONDS_EACH) -max_len=2500 -timeout=60 || exit; done

# Undefined behaviour, in parts that each end in minutes. Two cases of each property: each step is
# interpreted.
MIRI = MIRIFLAGS="-Zmiri-disable-isolation $(MIRI_MORE)" PROPTEST_CASES=2 cargo $(NIGHTLY) miri test
miri: miri-wire miri-proto miri-checksum miri-engine

# Its property tests leak what their frames borrow.
miri-wire: MIRI_MORE := -Zmiri-ignore-leaks
miri-wire:
	$(MIRI) -p marline-wire

# The tests of its files; whole nodes and groups are the simulator's.
miri-proto:
	$(MIRI) -p marline-proto --lib -- --skip group::tests::

# The portable kernels.
miri-checksum:
	$(MIRI) -p marline-checksum --lib --test miri

# What makes no system call that Miri lacks (mapped files, sockets, ppoll).
miri-engine:
	$(MIRI) -p marline-engine --lib -- coalesce:: pool:: skips:: choice:: settings::

# Addresses, then races (which needs a standard library built for it, and most of its time for
# that). Not the models: loom and shuttle switch stacks by themselves.
SANITIZED := -p marline-checksum -p marline-rails -p marline-engine -p marline-provider --lib \
	--test oracle --test crc --test miri
SANITIZED_ALL := -p marline-rails -p marline-engine --test all -- \
	loopback:: connected:: faulty:: two_engines:: yields::
sanitize: sanitize-address sanitize-thread

sanitize-address:
	for tests in "$(SANITIZED)" "$(SANITIZED_ALL)"; do \
		RUSTFLAGS=-Zsanitizer=address cargo $(NIGHTLY) test --no-fail-fast --target $(HOST) \
		--target-dir target/asan $$tests || exit; done

sanitize-thread:
	for tests in "$(SANITIZED)" "$(SANITIZED_ALL)"; do \
		RUSTFLAGS=-Zsanitizer=thread cargo $(NIGHTLY) test --no-fail-fast -Zbuild-std \
		--target $(HOST) --target-dir target/tsan $$tests || exit; done

clean:
	cargo clean
	rm -rf build

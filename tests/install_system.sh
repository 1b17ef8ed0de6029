#!/bin/sh
# Installs Chromium, redis-server, PostgreSQL, systemd-analyze, OpenSSH, iproute2, Slurm and Caddy for the tests that need them, when apt may be used; else says what is
# skipped. Debian keeps PostgreSQL's programs out of the PATH: the tests look where it does, as here.
has() { command -v "$1" >/dev/null; }
has_postgresql() {
    has initdb && return 0
    for program in /usr/lib/postgresql/*/bin/initdb; do [ -x "$program" ] && return 0; done
    return 1
}
missing=""
has chromium || has chromium-browser || has google-chrome || missing="chromium"
has redis-server || missing="$missing redis-server"
has_postgresql || missing="$missing postgresql"
has systemd-analyze || missing="$missing systemd"
has ssh || missing="$missing openssh-client"
[ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
has ip || missing="$missing iproute2"
[ -x /usr/sbin/slurmctld ] || missing="$missing slurm-wlm"
has caddy || missing="$missing caddy"
[ -z "$missing" ] && exit 0
if has apt-get && [ "$(id -u)" = 0 ]; then
    echo "Installing: $missing"
    # Debian starts a server when it installs it, sshd on all addresses. The tests start their own.
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod +x "$policy" && trap 'rm -f "$policy"' EXIT; }
    # shellcheck disable=SC2086
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
        case "$missing" in *openssh-server*) has systemctl && systemctl --quiet disable ssh.service ssh.socket 2>/dev/null ;; esac
        case "$missing" in *caddy*) has systemctl && systemctl --quiet disable caddy.service 2>/dev/null ;; esac
        exit 0
    fi
fi
skipped() { echo "Skipped: $1, because $2 is missing. Install it: apt-get install $3"; }
case "$missing" in *chromium*) skipped "tests/browser" Chromium chromium ;; esac
case "$missing" in *redis*) skipped "tests with a real Redis" redis-server redis-server ;; esac
case "$missing" in *openssh* | *iproute2*) skipped "tests of trainings on several hosts" "OpenSSH or iproute2" "openssh-server iproute2" ;; esac
case "$missing" in *slurm*) skipped "the test with Slurm" Slurm slurm-wlm ;; esac
case "$missing" in *caddy*) skipped "the tests of the one port" Caddy caddy ;; esac
case "$missing" in *systemd*) skipped "the check of the systemd units" systemd-analyze systemd ;; esac
case "$missing" in *postgresql*) skipped "tests of the registry on PostgreSQL" PostgreSQL postgresql ;; esac
exit 0

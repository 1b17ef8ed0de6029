#!/bin/sh
# Installs Chromium and redis-server for the tests that need them, when apt may be used; else says what is skipped.
missing=""
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="chromium"
command -v redis-server >/dev/null || missing="$missing redis-server"
[ -z "$missing" ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "Installing:$( [ -n "$missing" ] && echo " $missing")"
    # shellcheck disable=SC2086
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null && exit 0
fi
case "$missing" in *chromium*) echo "Skipped: tests/browser, because Chromium is missing. Install it: apt-get install chromium" ;; esac
case "$missing" in *redis*) echo "Skipped: tests with a real Redis, because redis-server is missing. Install it: apt-get install redis-server" ;; esac
exit 0

#!/bin/sh
# Installs, starts, upgrades and removes the package, as `cargo xtask dist` calls it:
#
#   unshare --mount --net --pid --fork trial.sh PACKAGE UPGRADE SPACE
#
# Everything happens in a copy of this machine's file system that is thrown away (an overlay in
# SPACE), with a network of its own and no systemd: what ExecStart says is run as the unit's user.
set -eu
package=$1 upgrade=$2 space=$3

fail() { echo "trial: $*" >&2 && exit 1; }
say() { echo "trial: $*"; }

ip link set lo up
mount -t tmpfs trial "$space"
mkdir "$space/upper" "$space/work" "$space/root"
mount -t overlay trial -o "lowerdir=/,upperdir=$space/upper,workdir=$space/work" "$space/root"
root=$space/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs run "$root/run"
mount -t tmpfs tmp "$root/tmp"
cp "$package" "$root/tmp/package.deb"
cp "$upgrade" "$root/tmp/upgrade.deb"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }

# The unit, as the package installs it.
unit=$root/usr/lib/systemd/system/handfast.service
of_unit() { sed -n "s/^$1=//p" "$unit"; }
# In place of the shell that calls it, so that a signal reaches the program.
as_account() {
    exec chroot "$root" setpriv --reuid="$(of_unit User)" --regid="$(of_unit Group)" --clear-groups \
        --no-new-privs --reset-env "$@"
}
start() {
    began=$(date +%s%N)
    # The command's words are split as systemd splits them.
    # shellcheck disable=SC2046
    (as_account $(of_unit ExecStart)) 2>"$space/log" &
    server=$!
    until inside handfast status >"$space/status" 2>/dev/null; do
        kill -0 $server 2>/dev/null || fail "it did not start: $(cat "$space/log")"
        [ $(($(date +%s%N) - began)) -lt 60000000000 ] || fail "not ready: $(cat "$space/log")"
    done
    say "$1: answers $((($(date +%s%N) - began) / 1000000)) ms after its start"
}
stop() {
    kill -TERM $server
    wait $server || fail "it ended with $?: $(cat "$space/log")"
}
epoch() {
    (as_account handfast check --config /etc/handfast.toml --json) |
        sed -n 's/.*"epoch": *\([0-9]*\).*/\1/p' | head -n 1
}

say "installing"
inside dpkg --no-triggers --force-unsafe-io --install /tmp/package.deb
if [ -x "$root/usr/bin/systemd-analyze" ]; then
    inside systemd-analyze verify --man=no /usr/lib/systemd/system/handfast.service
    # In tenths: what is left is that a server needs the network.
    inside systemd-analyze security --offline=true --threshold=15 --no-pager \
        /usr/lib/systemd/system/handfast.service | tail -n 1
fi
[ "$(stat -c %a "$root/etc/handfast.toml")" = 640 ] || fail "everybody reads the configuration"
[ "$(inside stat -c %U:%a /var/lib/handfast)" = handfast:750 ] || fail "the records are open"
inside handfast config --config /etc/handfast.toml >/dev/null
for file in share/man/man1/handfast.1.gz share/man/man1/handfast-tx-ls.1.gz \
    share/bash-completion/completions/handfast share/zsh/vendor-completions/_handfast \
    share/fish/vendor_completions.d/handfast.fish share/doc/handfast/copyright; do
    [ -s "$root/usr/$file" ] || fail "no /usr/$file"
done
inside bash -c '. /usr/share/bash-completion/completions/handfast && complete -p handfast' >/dev/null
start installed
stop
first=$(epoch)

say "upgrading"
echo '# a line of the administrator' >>"$root/etc/handfast.toml"
inside dpkg --no-triggers --force-unsafe-io --install /tmp/upgrade.deb
grep -q '^# a line of the administrator' "$root/etc/handfast.toml" || fail "the configuration is lost"
start upgraded
stop
second=$(epoch)
[ "$second" -gt "$first" ] || fail "the records are lost: epoch $first, then $second"
say "the records are kept: epoch $first, then $second"

say "removing"
inside dpkg --no-triggers --remove handfast
[ ! -e "$root/usr/bin/handfast" ] || fail "the program is still there"
[ -e "$root/etc/handfast.toml" ] || fail "a removal takes the configuration along"
inside dpkg --no-triggers --purge handfast
[ ! -e "$root/etc/handfast.toml" ] || fail "a purge leaves the configuration"
[ -d "$root/var/lib/handfast" ] || fail "a purge takes the records along"
say "installed, started, upgraded, removed"

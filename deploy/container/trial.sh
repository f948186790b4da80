#!/bin/sh
# Runs the static program as a container would, as `cargo xtask dist` calls it:
#
#   unshare --mount --net --pid --fork trial.sh PROGRAMS SPACE
#
# The root is the image's own and read-only, the user has no name outside of it and no capability,
# the network is its own, and /var/lib/handfast is the only place to write to.
set -eu
programs=$1 space=$2
here=$(dirname "$0")

fail() { echo "trial: $*" >&2 && exit 1; }
say() { echo "trial: $*"; }

ip link set lo up
mount -t proc proc /proc
mount -t tmpfs trial "$space"
mkdir "$space/root"
sh "$here/rootfs.sh" "$programs" "$space/root"
root=$space/root
mount --bind "$root" "$root"
mount -t tmpfs -o uid=65532,gid=65532,mode=0750 records "$root/var/lib/handfast"
mount -o remount,bind,ro "$root"
! touch "$root/usr/bin/written" 2>/dev/null || fail "the root can be written to"
# In place of the shell that calls it, so that a signal reaches the program.
contained() {
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HANDFAST_DATA_DIR=/var/lib/handfast \
        setpriv --no-new-privs \
        --bounding-set=-all,+sys_chroot,+setuid,+setgid \
        chroot --userspec=65532:65532 --groups= "$root" "$@"
}
size=$(du -sk --apparent-size "$root" | cut -f1)
say "the image's files have $size KiB"

began=$(date +%s%N)
(contained /usr/bin/handfast serve) 2>"$space/log" &
server=$!
until (contained /usr/bin/handfast status) >"$space/status" 2>/dev/null; do
    kill -0 $server 2>/dev/null || fail "it did not start: $(cat "$space/log")"
    [ $(($(date +%s%N) - began)) -lt 60000000000 ] || fail "not ready: $(cat "$space/log")"
done
say "answers $((($(date +%s%N) - began) / 1000000)) ms after its start"
user=$(awk '/^Uid:/ { print $2 }' "/proc/$server/status")
[ "$user" = 65532 ] || fail "it runs as $user"
capabilities=$(awk '/^CapEff:/ { print $2 }' "/proc/$server/status")
[ "$capabilities" = 0000000000000000 ] || fail "it has capabilities $capabilities"
kill -TERM $server
wait $server || fail "it ended with $?: $(cat "$space/log")"
[ -s "$root/var/lib/handfast/records" ] || [ -d "$root/var/lib/handfast/records" ] || fail "no records"
(contained /usr/bin/handfast relay --help) >"$space/help" || fail "no relay"
say "runs in a read-only root as another user, and stops when asked"

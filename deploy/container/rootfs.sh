#!/bin/sh
# Makes the file system of the image: the static program, one directory for records, certificates
# of public authorities, and nothing else. The Dockerfile and `cargo xtask dist` use the same.
#
#   rootfs.sh PROGRAMS ROOT
set -eu
programs=$1 root=$2

mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/etc/handfast" "$root/var/lib/handfast" "$root/tmp"
install -m 0755 "$programs/handfast" "$root/usr/bin/handfast"
# What reqwest and sqlx find authorities by, for stores and participants with public certificates.
install -m 0644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
printf 'handfast:x:65532:65532::/var/lib/handfast:/sbin/nologin\n' >"$root/etc/passwd"
printf 'handfast:x:65532:\n' >"$root/etc/group"
chown 65532:65532 "$root/var/lib/handfast"
chmod 0750 "$root/var/lib/handfast"
chmod 1777 "$root/tmp"

#!/bin/sh
# Makes the file system of the image: two static programs, one directory for records, certificates
# of public authorities, and nothing else. The Dockerfile and `cargo xtask dist` use the same.
#
#   rootfs.sh PROGRAMS ROOT
set -eu
programs=$1 root=$2

mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/etc/handfast" "$root/var/lib/handfast" "$root/tmp"
for program in handfast handfast-relay; do
    install -m 0755 "$programs/$program" "$root/usr/bin/$program"
done
# What reqwest and sqlx find authorities by, for stores and participants with public certificates.
install -m 0644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
printf 'handfast:x:65532:65532::/var/lib/handfast:/sbin/nologin\n' >"$root/etc/passwd"
printf 'handfast:x:65532:\n' >"$root/etc/group"
chown 65532:65532 "$root/var/lib/handfast"
chmod 0750 "$root/var/lib/handfast"
chmod 1777 "$root/tmp"

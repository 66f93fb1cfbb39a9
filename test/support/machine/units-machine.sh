#!/bin/bash
# A machine with a systemd of its own, on a copy of this machine's files, in which scripts/test-units runs tests. The checkout is /checkout
# there, since units do not see all of where it may lie. It ends with standard input. Environment: MACHINE_MARK. Prints the process that is
# its process 1.
set -u
trap '' INT TERM HUP PIPE
root=/run/machine/root

mount -t tmpfs -o mode=755 run /run &&
  mkdir /run/machine &&
  mount -t tmpfs -o mode=755,size=8g machine /run/machine &&
  mkdir /run/machine/upper /run/machine/work "$root" &&
  mount -t overlay -o "lowerdir=/,upperdir=/run/machine/upper,workdir=/run/machine/work" machine "$root" || exit 1
ip link set lo up

# Of its own services it starts none: neither engines nor anything else that tests start themselves.
rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/rc?.d "$root"/tmp/* "$root"/var/lib/holdfast* "$root"/etc/holdfast "$root"/run/*
rm -f "$root"/etc/machine-id
: >"$root/etc/machine-id"
for unit in systemd-networkd systemd-resolved systemd-timesyncd systemd-logind systemd-udevd systemd-sysctl console-getty getty@; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit.service"
done
cp systemd/holdfast.sysusers "$root/usr/lib/sysusers.d/holdfast.conf"
mkdir -p "$root/t/units"
chmod 1777 "$root/t"
# What a unit asks systemd to start is started where the unit is: the network and the files that a test has made for it.
mv "$root/usr/bin/systemd-run" "$root/usr/bin/systemd-run.real"
cat >"$root/usr/bin/systemd-run" <<'run'
#!/bin/sh
unit=$(sed -n 's,^\(0::\|.*:name=systemd:\).*/,,p' /proc/self/cgroup | head -n 1)
place=/t/units/$unit.place
[ ! -s "$place" ] || while read -r property; do set -- "$property" "$@"; done <"$place"
exec /usr/bin/systemd-run.real "$@"
run
chmod 755 "$root/usr/bin/systemd-run"

groups() { find /sys/fs/cgroup -depth -type d -path "*/$MACHINE_MARK*" 2>/dev/null; }
for hierarchy in systemd unified memory; do
  [ ! -e "/sys/fs/cgroup/$hierarchy/cgroup.procs" ] || mkdir "/sys/fs/cgroup/$hierarchy/$MACHINE_MARK"
done
[ ! -e /sys/fs/cgroup/cgroup.procs ] || mkdir "/sys/fs/cgroup/$MACHINE_MARK"
(
  for group in /sys/fs/cgroup/$MACHINE_MARK /sys/fs/cgroup/*/$MACHINE_MARK; do
    [ ! -d "$group" ] || echo "$BASHPID" >"$group/cgroup.procs"
  done
  export SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes SYSTEMD_SECCOMP=0
  exec systemd-nspawn --quiet --boot "--machine=$MACHINE_MARK" --register=no --keep-unit --settings=no --console=read-only \
    --private-network --resolv-conf=off --timezone=off --link-journal=no --capability=all "--directory=$root" \
    "--overlay=$PWD::/checkout" systemd.unit=multi-user.target
) </dev/null >&2 &
nspawn=$!
leader() { for child in $(cat "/proc/$nspawn/task/$nspawn/children"); do grep -q '^NSpid:.*\s1$' "/proc/$child/status" && echo "$child"; done; }
until [ -n "$(leader 2>/dev/null)" ]; do
  kill -0 "$nspawn" 2>/dev/null || exit 1
  sleep 0.1
done
leader=$(leader)
until nsenter -t "$leader" -a systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; do sleep 0.2; done
# Nothing can be mounted over the files of nspawn's own.
nsenter -t "$leader" -a umount /proc/sys/kernel/random/boot_id
# Engines make groups for their containers.
nsenter -t "$leader" -a sh -c 'mount -o remount,rw /sys/fs/cgroup; for at in /sys/fs/cgroup/*; do mount -o remount,bind,rw "$at"; done' 2>/dev/null
# The card of a machine, as tests expect one.
nsenter -t "$leader" -a ip -batch - <<'ip'
link add name eth0 type veth peer name outside
address add 198.51.100.2/24 dev eth0
link set outside up
link set eth0 up
route add default via 198.51.100.1
ip
# Copies of what programs see, below it, are no part of what others see.
nsenter -t "$leader" -a sh -c 'mkdir -p /run/holdfast-places && mount -t tmpfs places /run/holdfast-places && mount --make-unbindable /run/holdfast-places'
echo "$leader"
cat >/dev/null

kill -9 "$leader" "$nspawn" 2>/dev/null
for _ in $(seq 200); do
  left=$(groups | while read -r group; do cat "$group/cgroup.procs"; done 2>/dev/null | sort -u)
  [ -n "$left" ] || break
  for pid in $left; do kill -9 "$pid"; done 2>/dev/null
  sleep 0.05
done
groups | while read -r group; do rmdir "$group"; done 2>/dev/null

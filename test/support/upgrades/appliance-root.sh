#!/usr/bin/env bash
# Makes the file system of a small Debian 12 with systemd, by debootstrap(8), for test/support/upgrades/appliance-machine.ts, and prints where it
# lies. It is made once on a machine and kept; what is kept is told by what it is made of: the packages, and this script. Needs root.
set -euo pipefail

suite=bookworm
# What an appliance has, what the package of Holdfast depends on, and what the tests look with.
packages=systemd,systemd-sysv,dbus,libnss-systemd,iproute2,nftables,iputils-ping,ca-certificates,curl,openssl,conntrack,tcpdump,procps,socat
packages+=,libatomic1,libstdc++6,xz-utils,zstd,mtr-tiny,traceroute,arping,ethtool,udhcpc
kept=/var/cache/holdfast-test/appliance
key=$(sha256sum "${BASH_SOURCE[0]}" | cut -c 1-16)

mkdir -p "$kept"
exec 9>"$kept/lock"
flock 9
if [ -d "$kept/$key" ]; then
  echo "$kept/$key"
  exit
fi
rm -rf --one-file-system "${kept:?}"/*/

# The mirror and the proxy that this machine installs its own packages from.
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 2>/dev/null |
  awk -v suite="$suite" '$2 == suite && $3 == "main" { print $1; exit }')
eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
[ -z "${http_proxy:-}" ] || export http_proxy
[ -z "${https_proxy:-}" ] || export https_proxy

# In memory, and in a mount namespace of its own: packages are unpacked with a sync for each, and nothing is left of an attempt that fails.
make() {
  work=$(mktemp -d "$kept/part.XXXXXX")
  mount -t tmpfs -o mode=755,size=1500m appliance "$work"
  root=$work/root
  debootstrap --foreign --variant=minbase --include="$packages" "$suite" "$root" ${mirror:+"$mirror"}
  mkdir -p "$root/etc/dpkg/dpkg.cfg.d"
  printf 'path-exclude=/usr/share/%s/*\n' doc man info locale zoneinfo lintian bug >"$root/etc/dpkg/dpkg.cfg.d/lean"
  chroot "$root" /debootstrap/debootstrap --second-stage
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,info,locale}/* "$root"/var/log/*.log

  # Each machine is given its own when it starts for the first time; without the file all units would be enabled then.
  : >"$root/etc/machine-id"
  echo appliance >"$root/etc/hostname"
  printf '127.0.0.1 localhost\n127.0.1.1 appliance\n' >"$root/etc/hosts"
  : >"$root/etc/resolv.conf"
  # The journal outlives a power cut, and keeps everything.
  mkdir -p "$root/var/log/journal" "$root/etc/systemd/journald.conf.d" "$root/etc/systemd/system.conf.d"
  printf '[Journal]\nStorage=persistent\nRateLimitBurst=0\n' >"$root/etc/systemd/journald.conf.d/test.conf"
  # What is started by hand looks at itself when nothing else does.
  for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer console-getty.service \
    getty@.service dev-hugepages.mount systemd-networkd.service systemd-resolved.service systemd-timesyncd.service nftables.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
  done
  # The distribution's own network: one link, an address, the way out.
  cat >"$root/etc/systemd/system/distribution-network.service" <<'unit'
[Unit]
Description=Network as the distribution sets it
DefaultDependencies=no
After=systemd-sysctl.service
Wants=network.target
Before=network.target shutdown.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'ip link set host0 name eth0; ip address replace 203.0.113.2/24 dev eth0 && ip link set eth0 up && ip route replace default via 203.0.113.1'
[Install]
WantedBy=sysinit.target
unit
  mkdir -p "$root/etc/systemd/system/sysinit.target.wants"
  ln -s ../distribution-network.service "$root/etc/systemd/system/sysinit.target.wants/"
  cp -a "$root" "$kept/$key.new"
}
export -f make
export kept key suite packages mirror
trap 'rm -rf --one-file-system "$kept"/part.* "$kept/$key.new"' EXIT
if ! unshare --mount --propagation private bash -euo pipefail -c make >"$kept/log" 2>&1 9>&-; then
  tail -n 20 "$kept/log" >&2
  exit 1
fi
# One sync for all of it, before the name says that it is whole.
sync -f "$kept"
mv "$kept/$key.new" "$kept/$key"
echo "$kept/$key"

/**
 * The script that replaces dhclient-script(8) and udhcpc's default.script. Sets the address with its lifetime and at most two
 * routes: the subnet's and the default route. Does not change the resolver or the host name, and ignores static routes of the
 * lease (options 33 and 121). The lifetime makes the kernel remove an address that a client leaves behind. Routes have the
 * address as their source and are removed with it.
 * `HOLDFAST_METRIC` is the metric of the routes. `HOLDFAST_LEASE` is the file that stores the address; other leased addresses are
 * not ours. `HOLDFAST_OFFER` is the file for the gateway and the name servers of the lease. With `HOLDFAST_GATEWAY=0` it sets no
 * default route, and no subnet route shorter than /8, which would act as part of one. With `HOLDFAST_NOTES=1` the client, such as
 * dhcpcd, sets everything itself, and the script writes only the offer file.
 */
export const DHCP_SCRIPT = `#!/bin/sh
# Written by holdfast.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
event=\${reason:-$1}
link=$interface
metric=\${HOLDFAST_METRIC:-1024}

prefix_of() {
  bits=0
  IFS=.
  for byte in $1; do
    while [ "$byte" -gt 0 ]; do
      bits=$((bits + byte % 2))
      byte=$((byte / 2))
    done
  done
  unset IFS
  echo "$bits"
}

# Without the default route, no part of it either: $1 prefix length
is_left_out() {
  [ "$HOLDFAST_GATEWAY" = 0 ] && [ "$1" -lt 8 ]
}

# $1 destination, $2 gateway
add_route() {
  if [ "$2" = 0.0.0.0 ]; then
    ip -4 route replace "$1" dev "$link" metric "$metric" proto 16 src "$address"
  else
    # The gateway may lie outside the subnet.
    ip -4 route replace "$1" via "$2" dev "$link" onlink metric "$metric" proto 16 src "$address"
  fi
}

# Notes the gateway and the name servers that the lease names: $1 gateway, $2 name servers
note() {
  [ -n "$HOLDFAST_OFFER" ] || return 0
  printf 'router %s\\ndns %s\\n' "$1" "$2" >"$HOLDFAST_OFFER.new"
  mv "$HOLDFAST_OFFER.new" "$HOLDFAST_OFFER"
}

forget() {
  [ -z "$HOLDFAST_OFFER" ] || rm -f "$HOLDFAST_OFFER"
}

# Takes away a leased address, unless somebody has made it the link's for good; others of its subnet stay.
drop() {
  [ -n "$(ip -4 -o address show dev "$link" dynamic to "\${1%/*}")" ] || return 0
  promote=/proc/sys/net/ipv4/conf/$link/promote_secondaries
  before=$(cat "$promote")
  [ "$before" = 1 ] || echo 1 >"$promote"
  ip -4 address delete "$1" dev "$link"
  [ "$before" = 1 ] || echo "$before" >"$promote"
}

# Takes away the address of an earlier lease, unless it is $1.
remember() {
  former=$(cat "$HOLDFAST_LEASE" 2>/dev/null)
  echo "$1" >"$HOLDFAST_LEASE"
  [ -z "$former" ] || [ "$former" = "$1" ] || drop "$former"
}

configure() {
  ip link set dev "$link" up
  ip -4 address replace "$address/$prefix" brd + dev "$link" valid_lft "$lease" preferred_lft "$lease" noprefixroute ||
    ip -4 address replace "$address/$prefix" dev "$link" valid_lft "$lease" preferred_lft "$lease" noprefixroute
  remember "$address/$prefix"
  [ "$prefix" = 32 ] || is_left_out "$prefix" || add_route "$(network_of "$address" "$prefix")/$prefix" 0.0.0.0
  gateway=\${routers%% *}
  [ -z "$gateway" ] || [ "$HOLDFAST_GATEWAY" = 0 ] || add_route default "$gateway"
  note "$gateway" "$servers"
}

# $1 address, $2 prefix length
network_of() {
  left=$2
  network=
  IFS=.
  for byte in $1; do
    if [ "$left" -ge 8 ]; then
      part=$byte
      left=$((left - 8))
    else
      size=$((1 << (8 - left)))
      part=$((byte / size * size))
      left=0
    fi
    network="$network\${network:+.}$part"
  done
  unset IFS
  echo "$network"
}

if [ "$HOLDFAST_NOTES" = 1 ]; then
  case $event in
  BOUND | RENEW | REBIND | REBOOT)
    note "\${new_routers%% *}" "$new_domain_name_servers"
    ;;
  NOCARRIER | EXPIRE | FAIL | NAK | RELEASE | STOP | STOPPED | TIMEOUT)
    forget
    ;;
  esac
  exit 0
fi

case $event in
BOUND | RENEW | REBIND | REBOOT)
  address=$new_ip_address
  prefix=$(prefix_of "\${new_subnet_mask:-255.255.255.255}")
  lease=\${new_dhcp_lease_time:-3600}
  routers=$new_routers
  servers=$new_domain_name_servers
  configure
  ;;
bound | renew)
  address=$ip
  prefix=\${mask:-32}
  lease=\${lease:-3600}
  routers=$router
  servers=$dns
  configure
  ;;
PREINIT)
  ip link set dev "$link" up
  ;;
deconfig)
  ip link set dev "$link" up
  remember ""
  forget
  ;;
EXPIRE | FAIL | RELEASE | STOP)
  remember ""
  forget
  ;;
TIMEOUT)
  # An old lease that nobody confirms is none.
  exit 1
  ;;
esac
exit 0
`;

/** Configuration by dhclient.conf(5). Requests no unused options, so that servers send the gateway in option 3. */
export const DHCLIENT_CONFIG = `# Written by holdfast.
request subnet-mask, broadcast-address, routers, domain-name-servers;
timeout 30;
retry 10;
`;

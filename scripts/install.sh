#!/bin/sh
# Installs Holdfast on a machine with systemd: a Debian package where dpkg is, else the tarball.
# What it installs is vouched for by a signature, which it verifies first. It never asks anything, and may be repeated.
set -eu
umask 022
export LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# The public keys of releases (Ed25519, base64url), separated by blanks; filled in where a release is made.
release_keys=''

usage() {
  cat <<'USAGE'
usage: install.sh [--from DIR|URL] [--profile appliance|agent] [--license FILE] [--keys FILE] [--dry-run]
       install.sh --remove [--purge] [--dry-run]

  --from DIR|URL   where manifest.jws and the packages are; else where this script is
  --profile NAME   appliance (the default), or agent: no container engine, no network section
  --license FILE   registers the node once it is installed
  --keys FILE      the keys that may sign releases (a JWK set), instead of those known here
  --dry-run        says what would be done and changes nothing
  --remove         removes Holdfast; /var/lib/holdfast, /var/lib/holdfast-controller and /etc/holdfast stay
  --purge          with --remove: removes these, too
USAGE
}

say() { printf '%s\n' "$*"; }
die() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
misuse() { printf 'install.sh: %s; --help shows the usage\n' "$*" >&2; exit 2; }
has() { command -v "$1" >/dev/null 2>&1; }
need() { has "$1" || die "$1 is missing${2:+: $2}"; }

# step SENTENCE COMMAND...: says it and does it, or only says it.
step() {
  if [ -n "$dry_run" ]; then say "would: $1"; return; fi
  say "$1"
  shift
  "$@"
}

# Lines PATH=VALUE of a JSON text, as much of JSON as is needed here; a member that is there twice is refused.
flatten() {
  awk '
    function bad(why) { print "!" why; failed = 1; exit 1 }
    function at(    i, path) {
      path = ""
      for (i = 1; i <= depth; i++) path = path (i > 1 ? "." : "") (kind[i] == "{" ? key[i] : count[i])
      return path
    }
    function value(text) {
      if (depth == 0) bad("no object")
      if (kind[depth] == "{" && !named[depth]) bad("a value without a name")
      if ((at()) in seen) bad("twice: " at())
      seen[at()] = 1
      if (text != "") print at() "=" text
      named[depth] = 0
    }
    { all = all $0 "\n" }
    END {
      if (failed) exit 1
      while (all != "") {
        c = substr(all, 1, 1)
        if (c ~ /[ \t\r\n]/) size = 1
        else if (c == "\"") {
          if (!match(all, /^"([^"\\]|\\.)*"/)) bad("an open string")
          size = RLENGTH
          text = substr(all, 2, size - 2)
          if (depth > 0 && kind[depth] == "{" && !named[depth]) { key[depth] = text; named[depth] = 1 }
          else value(text)
        } else if (c == "{" || c == "[") {
          if (depth > 0) value("")
          if (depth > 0 && kind[depth] == "{") named[depth] = 0
          depth++; kind[depth] = c; count[depth] = 0; named[depth] = 0; size = 1
        } else if (c == "}" || c == "]") {
          if (depth == 0 || kind[depth] != (c == "}" ? "{" : "[")) bad("not balanced")
          depth--; size = 1; ended = 1
        } else if (c == ",") {
          if (depth > 0 && kind[depth] == "[") count[depth]++
          size = 1
        } else if (c == ":") size = 1
        else {
          if (!match(all, /^[-+.0-9a-zA-Z]+/)) bad("not JSON")
          size = RLENGTH
          value(substr(all, 1, size))
        }
        all = substr(all, size + 1)
      }
      if (depth != 0 || !ended) bad("not whole")
    }'
}

# field PATH: of the claims.
field() { printf '%s\n' "$claims" | awk -v path="$1" 'index($0, path "=") == 1 { print substr($0, length(path) + 2) }'; }

# base64url on stdin, its bytes on stdout.
unbase64() {
  awk '{ gsub(/-/, "+"); gsub(/_/, "/"); while (length($0) % 4) $0 = $0 "="; printf "%s", $0 }' | openssl base64 -d -A
}

# older A B: whether version A comes before B; both have the same width, so as text.
older() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a "" < b "") }'; }

fetch() { # NAME FILE
  case $from in
    http://* | https://*)
      if has curl; then
        curl -fsSL --retry 3 --connect-timeout 20 -o "$2" "${from%/}/$1" || die "$1: cannot be fetched from $from"
      elif has wget; then
        wget -q -O "$2" "${from%/}/$1" || die "$1: cannot be fetched from $from"
      else die "curl or wget is missing: one of them is needed to fetch from $from"; fi
      ;;
    *)
      [ -f "$from/$1" ] || die "$1: is not in $from"
      # A copy, so that what was verified is what is installed.
      cp "$from/$1" "$2" || die "$1: cannot be copied to $work"
      ;;
  esac
}

check_openssl() {
  need openssl "it verifies signatures; 3.0 or later is needed"
  case $(openssl pkeyutl -help 2>&1) in
    *-rawin*) ;;
    *) die "openssl is too old to verify Ed25519 signatures ($(openssl version)): 3.0 or later is needed" ;;
  esac
}

trusted_keys() {
  file=$keys_file
  if [ -z "$file" ] && [ -f /etc/holdfast/release-keys.json ]; then file=/etc/holdfast/release-keys.json; fi
  if [ -z "$file" ] && [ -z "$release_keys" ] && [ -f /usr/lib/holdfast/release-keys.json ]; then
    file=/usr/lib/holdfast/release-keys.json
  fi
  if [ -n "$file" ]; then
    [ -r "$file" ] || die "$file: cannot be read"
    release_keys=$(flatten <"$file" | sed -n 's/^keys\.[0-9]*\.x=\([A-Za-z0-9_-]\{43\}\)$/\1/p')
    [ -n "$release_keys" ] || die "$file: holds no Ed25519 key (a JWK set is expected)"
  fi
  [ -n "$release_keys" ] || die "no key is known that releases are signed by: name one by --keys"
}

# signed_by KEY: whether $work/input bears $work/signature of it. An Ed25519 key is its 32 bytes after a fixed head of 12.
signed_by() {
  x=$(printf '%s=' "$1" | tr '_-' '/+')
  printf -- '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA%s\n-----END PUBLIC KEY-----\n' "$x" >"$work/key.pem"
  openssl pkeyutl -verify -pubin -inkey "$work/key.pem" -rawin -in "$work/input" -sigfile "$work/signature" >/dev/null 2>&1
}

# Sets claims to what a trusted key has signed. Nothing of the manifest is looked at before.
verify_manifest() {
  fetch manifest.jws "$work/manifest"
  [ "$(wc -c <"$work/manifest")" -le 65536 ] || die "manifest.jws: is larger than 64 KiB"
  accepted=
  count=0
  while IFS= read -r line || [ -n "$line" ]; do
    count=$((count + 1))
    [ "$count" -le 16 ] || die "manifest.jws: has more than 16 lines"
    case $line in
      *[!A-Za-z0-9._-]* | *.*.*.* | .* | *. | *..*) die "manifest.jws: line $count is no compact JWS" ;;
      *.*.*) ;;
      *) die "manifest.jws: line $count is no compact JWS" ;;
    esac
    printf '%s' "${line%.*}" >"$work/input"
    printf '%s\n' "${line##*.}" | unbase64 >"$work/signature" 2>/dev/null || continue
    for key in $release_keys; do
      signed_by "$key" || continue
      header=$(printf '%s\n' "${line%%.*}" | unbase64 | flatten) || die "manifest.jws: line $count has no header"
      printf '%s\n' "$header" | grep -qx 'alg=Ed25519' || die "manifest.jws: line $count: alg is not Ed25519"
      printf '%s\n' "$header" | grep -qx 'typ=holdfast-release+jwt' || die "manifest.jws: line $count is signed, but no release"
      payload=${line#*.}
      payload=${payload%.*}
      if [ -n "$accepted" ] && [ "$accepted" != "$payload" ]; then die "manifest.jws: two signed lines differ"; fi
      accepted=$payload
      break
    done
  done <"$work/manifest"
  [ -n "$accepted" ] || die "manifest.jws: no signature of a trusted key verifies; nothing was installed"
  claims=$(printf '%s\n' "$accepted" | unbase64 | flatten) || die "manifest.jws: its claims are not JSON"
}

check_claims() {
  [ "$(field product)" = holdfast ] || die "manifest.jws: is of another product"
  version=$(field version)
  case $version in '' | *[!0-9.-]*) die "manifest.jws: version is missing" ;; esac
  now=$(date +%s)
  iat=$(field iat)
  exp=$(field exp)
  case $iat$exp in '' | *[!0-9]*) die "manifest.jws: has no times" ;; esac
  if [ "$iat" -gt $((now + 60)) ]; then
    die "manifest.jws: was made at $(utc "$iat"), and here it is $(utc "$now"): set the clock of this machine"
  fi
  [ "$exp" -gt "$now" ] || die "manifest.jws: expired at $(utc "$exp"), and here it is $(utc "$now"): get a newer release"
  if [ -z "$(field "files.$arch.name")$(field "packages.$arch.name")" ]; then
    die "manifest.jws: there is no package for this machine's architecture, $arch"
  fi
}

utc() { date -u -d "@$1" '+%Y-%m-%d %H:%M UTC' 2>/dev/null || printf '%s s' "$1"; }

need_room() { # DIRECTORY KIB
  free=$(df -Pk "$1" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$2" ] || die "$1 has $free KiB free, and $2 KiB are needed; nothing was installed"
}

# The payload: sets name; it is fetched and held against what the manifest says of it.
check_payload() { # files|packages
  name=$(field "$1.$arch.name")
  size=$(field "$1.$arch.size")
  sum=$(field "$1.$arch.sha256")
  unpacked=$(field "$1.$arch.unpackedSize")
  case $name in '' | .* | *[!A-Za-z0-9._~+-]*) die "manifest.jws: $1.$arch has no name" ;; esac
  need_room "$(if [ -d "$lib" ]; then echo "$lib"; else echo /usr; fi)" $(((unpacked + size) / 1024 + 16384))
  need_room "$work" $((size / 1024 + 256))
  fetch "$name" "$work/$name"
  found=$(wc -c <"$work/$name" | tr -d ' ')
  [ "$found" = "$size" ] || die "$name: is $found bytes long, and the manifest says $size: it is not installed"
  found=$(sha256sum "$work/$name" | cut -d ' ' -f 1)
  [ "$found" = "$sum" ] || die "$name: its SHA-256 is $found, and the manifest says $sum: it is not installed"
  say "$name: $size bytes, as the manifest says"
}

architecture() {
  if has dpkg; then dpkg --print-architecture; return; fi
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
  esac
}

is_debian() { has dpkg && has dpkg-query && [ -s /var/lib/dpkg/status ]; }
is_package() { is_debian && dpkg-query -W -f '${Status}' holdfast 2>/dev/null | grep -q ' \(installed\|unpacked\|half-configured\|half-installed\|triggers-.*\)$'; }
is_package_whole() { is_debian && [ "$(dpkg-query -W -f '${Status}' holdfast 2>/dev/null)" = 'install ok installed' ]; }

installed_version() {
  if is_package; then
    if is_package_whole; then dpkg-query -W -f '${Version}' holdfast; fi
  elif [ -f "$list" ] && [ ! -e "$lib/units-before" ] && [ -f "$lib/base/version" ]; then cat "$lib/base/version"; fi
}

# The setting profile of agent.json; the rest of the file stays as it is.
set_profile() {
  settings=/etc/holdfast/agent.json
  if [ ! -e "$settings" ]; then
    [ "$profile" != appliance ] || return 0
    is_profile_changed=yes
    step "set \"profile\" to \"$profile\" in $settings" write_settings "$(printf '{"profile":"%s"}' "$profile")"
    return
  fi
  flat=$(flatten <"$settings") || die "$settings: is no JSON object"
  old=$(printf '%s\n' "$flat" | sed -n 's/^profile=//p')
  if [ "${old:-appliance}" = "$profile" ]; then return 0; fi
  if [ -n "$old" ]; then
    [ "$(grep -o '"profile"' "$settings" | wc -l)" -eq 1 ] || die "$settings: set \"profile\" to \"$profile\" in it by hand"
    text=$(sed "s/\"profile\"\([[:space:]]*:[[:space:]]*\)\"$old\"/\"profile\"\1\"$profile\"/" "$settings")
    printf '%s\n' "$text" | flatten | grep -qx "profile=$profile" || die "$settings: set \"profile\" to \"$profile\" in it by hand"
  else
    comma=,
    [ -n "$flat" ] || grep -q '"' "$settings" || comma=
    text=$(awk -v member="\"profile\":\"$profile\"$comma" '!done && sub(/\{/, "{" member) { done = 1 } { print }' "$settings")
  fi
  is_profile_changed=yes
  step "set \"profile\" to \"$profile\" in $settings, whose other members stay" write_settings "$text"
}

write_settings() {
  mkdir -p /etc/holdfast
  rm -f /etc/holdfast/.agent.json.part
  # A proxy's address in it may have a password: whoever could not read it must not be able to afterwards.
  (umask 077 && : >/etc/holdfast/.agent.json.part)
  if [ -e /etc/holdfast/agent.json ]; then
    cp -p /etc/holdfast/agent.json /etc/holdfast/agent.json.before
    cp -p /etc/holdfast/agent.json /etc/holdfast/.agent.json.part
  fi
  printf '%s\n' "$1" >/etc/holdfast/.agent.json.part
  mv /etc/holdfast/.agent.json.part /etc/holdfast/agent.json
}

install_package() {
  export DEBIAN_FRONTEND=noninteractive
  if has apt-get; then
    apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold "$work/$name" </dev/null
  else
    dpkg --force-confold -i "$work/$name" </dev/null || die "$name: dpkg could not install it: see to what it says, then repeat"
  fi
}

# place FILE PATH: renamed into its place, so that what runs keeps what it has, and what is there is whole.
place() {
  mkdir -p "${2%/*}"
  cp -p "$1" "$2.part"
  mv -f "$2.part" "$2"
}

# Does what dpkg would do, with the same maintainer scripts. Cut off anywhere, it is to be repeated: units-before tells until the end.
install_tarball() {
  part=$lib/.part
  rm -rf "$part"
  mkdir -p "$part"
  if ! tar -xf "$work/$name" -C "$part" --no-same-owner; then
    rm -rf "$part"
    die "$name: cannot be unpacked to $lib; what was installed stays"
  fi
  old=$(cat "$lib/base.before/version" 2>/dev/null || cat "$lib/base/version" 2>/dev/null || true)
  if [ -n "$old" ]; then sh "$part/system/scripts/preinst" upgrade "$old"; else sh "$part/system/scripts/preinst" install; fi
  (cd "$part/system/files" && find . -type f >"$part/found")
  sed 's/^\.//' "$part/found" >"$part/list"
  for kept in preinst postinst prerm postrm; do printf '%s\n' "$lib/scripts/$kept"; done >>"$part/list"
  echo /usr/bin/holdfast >>"$part/list"
  if [ -f "$list" ]; then
    # What the version before brought and this one does not.
    awk 'NR == FNR { kept[$0]; next } !($0 in kept)' "$part/list" "$list" >"$part/left"
    while IFS= read -r path; do rm -f "$path"; done <"$part/left"
  fi
  place "$part/list" "$list"
  while IFS= read -r path; do place "$part/system/files/$path" "${path#.}"; done <"$part/found"
  for kept in preinst postinst prerm postrm; do place "$part/system/scripts/$kept" "$lib/scripts/$kept"; done
  mkdir -p /usr/bin
  [ "$(readlink /usr/bin/holdfast)" = ../lib/holdfast/launch ] || ln -sfn ../lib/holdfast/launch /usr/bin/holdfast
  rm -rf "$part/system" "$part/list" "$part/found" "$part/left"
  sync
  # The version before lies beside it, as base.before.
  rm -rf "$lib/base"
  mv "$part" "$lib/base"
  sh "$lib/scripts/postinst" configure "$old"
}

remove() {
  if is_package || { [ -n "$purge" ] && is_debian && dpkg-query -W -f '${Status}' holdfast 2>/dev/null | grep -q config-files; }; then
    export DEBIAN_FRONTEND=noninteractive
    # One whose unpacking was cut off would have to be installed again first.
    step "remove the package holdfast${purge:+ and all of its state}" dpkg --force-remove-reinstreq "--${purge:-remove}" holdfast
  elif [ -e "$lib" ]; then
    if [ -f "$lib/scripts/prerm" ]; then step "stop and disable Holdfast's units" sh "$lib/scripts/prerm" remove; fi
    step "remove $lib and the files that $list names" remove_files
  elif [ -n "$purge" ] && { [ -e /var/lib/holdfast ] || [ -e /etc/holdfast ]; }; then
    step "remove /var/lib/holdfast and /etc/holdfast" rm -rf /var/lib/holdfast /var/lib/holdfast-controller /etc/holdfast
  else say "Holdfast is not installed: there is nothing to remove"; fi
}

# The list and the scripts go last, so that it can be repeated wherever it was cut off.
remove_files() {
  : >"$lib/units-before"
  if [ -f "$list" ]; then
    while IFS= read -r path; do
      case $path in "$lib"/scripts/*) ;; *) rm -f "$path" "$path.part" ;; esac
    done <"$list"
  fi
  rm -rf /usr/share/doc/holdfast
  find "$lib" -mindepth 1 -maxdepth 1 ! -name scripts ! -path "$list" ! -name units-before -exec rm -rf {} +
  if [ -f "$lib/scripts/postrm" ]; then
    sh "$lib/scripts/postrm" remove
    if [ -n "$purge" ]; then sh "$lib/scripts/postrm" purge; fi
  fi
  rm -rf "$lib/scripts"
  rm -rf "$lib"
}

main() {
  from= profile= license= keys_file= dry_run= remove= purge= is_profile_changed=
  lib=/usr/lib/holdfast
  list=$lib/installed-files
  while [ $# -gt 0 ]; do
    case $1 in
      --from | --profile | --license | --keys)
        [ $# -ge 2 ] && [ -n "$2" ] || misuse "$1 needs a value"
        case $1 in
          --from) from=$2 ;;
          --profile) profile=$2 ;;
          --license) license=$2 ;;
          --keys) keys_file=$2 ;;
        esac
        shift
        ;;
      --dry-run) dry_run=yes ;;
      --remove) remove=yes ;;
      --purge) purge=purge ;;
      -h | --help) usage; exit 0 ;;
      *) misuse "$1 is not known" ;;
    esac
    shift
  done
  case $profile in '' | appliance | agent) ;; *) misuse "--profile is appliance or agent, not $profile" ;; esac
  if [ -n "$purge" ] && [ -z "$remove" ]; then misuse "--purge goes with --remove"; fi
  if [ -n "$license" ] && [ ! -r "$license" ]; then die "$license: cannot be read"; fi
  if [ -z "$dry_run" ] && [ "$(id -u)" -ne 0 ]; then die "must be run as root; --dry-run says what it would do"; fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM HUP
  if [ -n "$remove" ]; then remove; return; fi

  [ -n "$from" ] || from=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
  need awk
  need sha256sum
  need tar
  check_openssl
  need_room "$work" 256
  has systemctl || die "systemctl is missing: Holdfast runs under systemd"
  trusted_keys
  arch=$(architecture)
  verify_manifest
  check_claims
  say "manifest.jws: Holdfast $version ($(field build)), signed by a trusted key, valid until $(utc "$exp")"
  install_version
  if [ -n "$license" ]; then
    if [ -n "$dry_run" ] || [ -d /run/systemd/system ]; then
      step "register this node with $license" holdfast register "$license"
    else say "not registered, since systemd does not run here: after boot, run holdfast register $license"; fi
  fi
}

# What did not start when this version was installed.
start_rest() {
  unstarted=/usr/lib/holdfast/unstarted
  if [ ! -s "$unstarted" ] || [ ! -d /run/systemd/system ]; then return 0; fi
  while read -r action unit; do
    step "$action $unit, which did not start when it was installed" systemctl "$action" "$unit" </dev/null
  done <"$unstarted"
  if [ -z "$dry_run" ]; then rm "$unstarted"; fi
}

install_version() {
  installed=$(installed_version)
  if [ "$installed" = "$version" ]; then
    say "Holdfast $version is installed already"
    if [ -n "$profile" ]; then set_profile; fi
    start_rest
    if [ -n "$is_profile_changed" ] && [ -e /var/lib/holdfast/desired/checkpoint.json ]; then
      say "a change of the network is not confirmed yet: once it is, run systemctl restart holdfast-agent"
    elif [ -n "$is_profile_changed" ] && [ -d /run/systemd/system ]; then
      step "restart the agent" systemctl try-restart holdfast-agent.service
    fi
    return 0
  fi
  if [ -n "$installed" ]; then
    if older "$version" "$installed"; then die "Holdfast $installed is installed, which is newer than $version: remove it first"; fi
    if older "$installed" "$(field minVersion)"; then
      die "Holdfast $installed is installed, and $version takes over from $(field minVersion) on: install one between first"
    fi
  fi
  kind=files
  if is_debian && [ ! -f "$list" ] && [ -n "$(field "packages.$arch.name")" ]; then kind=packages; fi
  if [ "$kind" = files ]; then
    if is_package; then die "holdfast is installed by dpkg, and this release has no package for it"; fi
    need xz "it unpacks the tarball (xz-utils, or xz)"
    need systemd-sysusers
    need systemd-tmpfiles
  fi
  check_payload "$kind"
  if [ -n "$profile" ]; then set_profile; fi
  case $kind in
    packages) step "install $name with $(if has apt-get; then echo apt-get; else echo dpkg; fi), enable its units and start them" install_package ;;
    files) step "unpack $name to /usr/lib/holdfast, put its units in place, enable them and start them" install_tarball ;;
  esac
  if [ -z "$dry_run" ]; then say "Holdfast $version is installed"; fi
}

# Read to its end before anything is done, should it come through a pipe that breaks.
main "$@"

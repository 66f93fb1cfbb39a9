import { isIP } from "node:net";
import { fieldsOf, shellFields } from "../../lib/text/text-fields.ts";
import type { Link } from "./ip/links.ts";
import { linkOfUnit } from "./dhcp/dhcp-client.ts";
import type { Reader } from "../reader.ts";

/** Address source and name servers of a link, by the machine's network service. */
export interface LinkConfiguration {
  /** Undefined if no readable service manages the link. */
  readonly usesDhcp: boolean | undefined;
  readonly nameServers: readonly string[];
}

const TRANSIENT_UNITS = "/run/systemd/transient";
const CONNECTIONS = ["/run/NetworkManager/system-connections", "/etc/NetworkManager/system-connections"];
const MAX_CONNECTIONS = 256;
const DHCLIENT_DIRECTORIES = ["/var/lib/dhcp", "/var/lib/dhclient"];

/**
 * Reads the address source of a link: our own DHCP client, whose files are in `runDir`, else systemd-networkd (also behind
 * netplan), else NetworkManager, else dhclient's leases. `now` is in Unix milliseconds.
 */
export function readLinkConfiguration(
  reader: Reader,
  link: Link,
  now: number,
  runDir = "/run/holdfast",
): LinkConfiguration {
  const service =
    link.index === undefined
      ? undefined
      : (networkdConfiguration(reader, link.index) ?? networkManagerConfiguration(reader, link.index));
  if (hasOwnClient(reader, link.name, runDir)) return { usesDhcp: true, nameServers: service?.nameServers ?? [] };
  return service ?? { usesDhcp: hasDhclientLease(reader, link.name, now) ? true : undefined, nameServers: [] };
}

/** Reports whether our client runs, as a systemd unit or as a detached child with a pid file. */
function hasOwnClient(reader: Reader, link: string, runDir: string): boolean {
  const units = reader.list(TRANSIENT_UNITS) ?? [];
  if (units.some((unit) => linkOfUnit(unit) === link)) return true;
  const pid = /^\d+/.exec(reader.read(`${runDir}/dhcp-${link}.pid`) ?? "")?.[0];
  return pid !== undefined && reader.read(`/proc/${pid}/comm`) !== undefined;
}

/**
 * Reads NetworkManager's configuration of a link: its device file names the connection, whose file has the method
 * (nm-settings-keyfile(5)).
 */
function networkManagerConfiguration(reader: Reader, index: number): LinkConfiguration | undefined {
  const device = reader.read(`/run/NetworkManager/devices/${index}`);
  const uuid = device === undefined ? undefined : /^connection-uuid=(\S+)/m.exec(device)?.[1];
  if (device === undefined || uuid === undefined || !/^managed=true/m.test(device)) return undefined;
  for (const directory of CONNECTIONS) {
    for (const file of (reader.list(directory) ?? []).slice(0, MAX_CONNECTIONS)) {
      const text = reader.read(`${directory}/${file}`) ?? "";
      if (/^uuid=(\S+)/m.exec(text)?.[1] !== uuid) continue;
      const ipv4 = text.split(/^\s*\[/m).find((part) => part.startsWith("ipv4]")) ?? "";
      const servers = /^dns=(.*)$/m.exec(ipv4)?.[1] ?? "";
      return {
        usesDhcp: /^method=(\S+)/m.exec(ipv4)?.[1] === "auto",
        nameServers: servers.split(/[;,\s]+/).filter((server) => isIP(server) !== 0),
      };
    }
  }
  return { usesDhcp: undefined, nameServers: [] };
}

function networkdConfiguration(reader: Reader, index: number): LinkConfiguration | undefined {
  const state = reader.read(`/run/systemd/netif/links/${index}`);
  if (state === undefined) return undefined;
  const fields = shellFields(state);
  const unit = fields.get("NETWORK_FILE");
  if (unit === undefined) return undefined;
  const hasLease = reader.fingerprint(`/run/systemd/netif/leases/${index}`) !== undefined;
  return {
    usesDhcp: hasLease ? true : networkUsesDhcp(reader.read(unit)),
    nameServers: fieldsOf(fields.get("DNS") ?? "").filter((server) => isIP(server) !== 0),
  };
}

/** Parses `DHCP=` in the [Network] section of a systemd.network(5) file, for IPv4. */
export function networkUsesDhcp(text: string | undefined): boolean | undefined {
  if (text === undefined) return undefined;
  const section = text.split(/^\s*\[/m).filter((part) => part.startsWith("Network]"));
  const values = section.flatMap((part) => [...part.matchAll(/^\s*DHCP\s*=\s*(\S*)/gm)].map((match) => match[1] ?? ""));
  return ["yes", "true", "1", "on", "both", "ipv4", "v4"].includes((values.at(-1) ?? "").toLowerCase());
}

function hasDhclientLease(reader: Reader, link: string, now: number): boolean {
  return DHCLIENT_DIRECTORIES.some((directory) =>
    (reader.list(directory) ?? [])
      .filter((file) => /^dhclient.*\.leases?$/.test(file))
      .some((file) => isLeased(reader.read(`${directory}/${file}`) ?? "", link, now)),
  );
}

/** Reports whether a dhclient.leases(5) text has an unexpired lease for the link. */
export function isLeased(text: string, link: string, now: number): boolean {
  return text.split(/^lease\s*\{/m).some((lease) => {
    if (/^\s*interface\s+"([^"]*)"\s*;/m.exec(lease)?.[1] !== link) return false;
    const expire = /^\s*expire\s+(never|epoch\s+\d+|\d\s+\d{4}\/\d{2}\/\d{2}\s+\d{2}:\d{2}:\d{2})/m.exec(lease)?.[1];
    if (expire === undefined) return false;
    if (expire === "never") return true;
    if (expire.startsWith("epoch")) return Number(fieldsOf(expire)[1]) * 1000 > now;
    const [, date = "", time = ""] = fieldsOf(expire);
    return Date.parse(`${date.replaceAll("/", "-")}T${time}Z`) > now;
  });
}

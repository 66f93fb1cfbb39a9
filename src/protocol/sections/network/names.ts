import { DEFAULT_VRF } from "./fields.ts";
import type { NetworkReader, Place } from "./reader.ts";

const LONGEST = 15;
/** Names below /proc/sys/net/ipv4/conf that are no links, and the link that is never set down. */
const RESERVED: ReadonlySet<string> = new Set(["all", DEFAULT_VRF, "lo"]);

/** The names of links, tunnels and VRFs in the section, which share one namespace on the machine. */
export class NetworkNames {
  readonly #paths = new Map<string, string>();
  readonly #vrfs = new Set([DEFAULT_VRF]);
  /** The links of VLANs by the name they would have if there were room. */
  readonly #vlans = new Map<string, string>();
  readonly #nics: ReadonlySet<unknown>;
  /** Pattern of names that VLAN links must not have. */
  readonly #taken: Set<unknown>;

  constructor(nics: ReadonlySet<unknown>) {
    this.#nics = nics;
    this.#taken = new Set(nics);
  }

  /** Reports whether an interface of the section has the name, valid or not. */
  isNic(name: string): boolean {
    return this.#nics.has(name);
  }

  /** Takes a name; one that Linux keeps, and the later of two that are alike, is rejected, and this is false. */
  claim(reader: NetworkReader, at: Place, field: string, name: string): boolean {
    if (RESERVED.has(name)) {
      reader.conflict("E_NAME_FORMAT", at, field, `${name} is a name that Linux keeps for itself`);
      return false;
    }
    const other = this.#paths.get(name);
    if (other === undefined) this.#paths.set(name, at.path);
    else reader.conflict("E_NAME_DUPLICATE", at, field, `${name} is in ${other} already`);
    return other === undefined;
  }

  addVrf(name: string): void {
    this.#vrfs.add(name);
  }

  /** Reports whether the VRF exists; undefined means the default context. */
  hasVrf(name: string | undefined): boolean {
    return name === undefined || this.#vrfs.has(name);
  }

  /** Returns the name of a VLAN's link, `<nic>.<id>`; a longer name than the kernel allows is cut and gets a digest of the full one. */
  vlan(nic: string, id: number): string {
    const full = `${nic}.${id}`;
    const known = this.#vlans.get(full);
    if (known !== undefined) return known;
    const link = full.length <= LONGEST ? full : this.#shortened(nic, id, full);
    this.#vlans.set(full, link);
    this.#taken.add(link);
    return link;
  }

  /** The link that a route or a rule means, which may be a VLAN by its long name. */
  link(name: string): string {
    return this.#vlans.get(name) ?? name;
  }

  has(name: string): boolean {
    return this.#paths.has(name);
  }

  #shortened(nic: string, id: number, full: string): string {
    for (let salt = 0; ; salt++) {
      const digest = digestOf(salt === 0 ? full : `${full} ${salt}`);
      const tail = `${digest}.${id}`;
      const link = nic.slice(0, LONGEST - tail.length) + tail;
      if (!this.#taken.has(link)) return link;
    }
  }
}

/** FNV-1a of 32 bits in four characters. */
function digestOf(text: string): string {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193) >>> 0;
  return hash.toString(36).padStart(7, "0").slice(-4);
}

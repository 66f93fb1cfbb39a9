import type { Nat, NetworkConfig } from "./config.ts";

/** A translation and the name by which its hits are counted: the comment on all that the firewall has for it. */
export interface TrackedNat {
  readonly tracker: string;
  /** The VRF; absent: the default context. */
  readonly vrf?: string;
  readonly nat: Nat;
}

/** Pattern of text that needs no quoting in an nftables comment. */
const SAFE = /^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$/;
const DEFAULT_CONTEXT = "default";

/** The name of a translation: its own uid, else where it stands in its list. */
export function natTracker(nat: Pick<Nat, "uid">, vrf: string | undefined, at: number): string {
  if (nat.uid !== undefined && SAFE.test(nat.uid)) return nat.uid;
  return `${vrf ?? DEFAULT_CONTEXT}:${at}`;
}

/** Every translation of the section, those of the default context first. */
export function trackedNats({ routing, vrfs }: Pick<NetworkConfig, "routing" | "vrfs">): readonly TrackedNat[] {
  return [
    ...routing.nats.map((nat, at) => ({ tracker: natTracker(nat, undefined, at), nat })),
    ...vrfs.flatMap(({ name, nats }) =>
      nats.map((nat, at) => ({ tracker: natTracker(nat, name, at), vrf: name, nat })),
    ),
  ];
}

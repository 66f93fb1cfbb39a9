import { isIP } from "node:net";
import { isInBlock } from "../../lib/net/cidr.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import { plainAddress, sharedPrefix } from "../../lib/net/plain-address.ts";

/** Blocks that a node may be locked to. */
export const MAX_LOCK_BLOCKS = 16;

/** The lock in a node's record. */
export interface IpLock {
  /** Blocks it may connect from; undefined if it is not locked. */
  readonly lockedTo?: readonly string[] | undefined;
  /** The address outside them from which it connects. */
  readonly unauthorizedIp?: string | undefined;
}

/** The block to lock a node to by its address: the IPv4 address, or the /64 of an IPv6 one, since hosts change addresses within it. Pure. */
export const placeOf = (address: string): string => sharedPrefix(address);

/** Reports whether a lock permits an address. Pure. */
export function isPermitted(lockedTo: readonly string[] | undefined, address: string): boolean {
  return lockedTo === undefined || lockedTo.some((block) => isInBlock(address, withoutMapping(block)));
}

/** An IPv4 block for one that is mapped into IPv6 (RFC 4291 section 2.5.5.2), since the addresses of nodes are never written so. */
function withoutMapping(block: string): string {
  const [address = "", length] = block.split("/");
  const plain = plainAddress(address);
  const prefix = length === undefined ? 128 : Number(length);
  return isIP(address) === 6 && isIP(plain) === 4 && prefix >= 96 ? `${plain}/${prefix - 96}` : block;
}

/** The state that a node gets: INACTIVE while it connects from an address outside its lock. Pure. */
export function stateOf<S extends string>({ state, unauthorizedIp }: IpLock & { readonly state: S }): S | "INACTIVE" {
  return unauthorizedIp === undefined ? state : "INACTIVE";
}

/** The sections that a node gets: only `network` while it connects from an address outside its lock. Pure. */
export function permittedConfig(node: IpLock, config: Config): Config {
  if (node.unauthorizedIp === undefined) return config;
  return config.network === undefined ? {} : { network: config.network };
}

/** Triggers for a node that connects from an address outside its lock: those that repair its connection. */
const REPAIRS: ReadonlySet<string> = new Set(["network-status", "network-keep", "tg-ping", "tg-traceroute"]);

/** Reports whether a node outside its lock takes a trigger. Pure. */
export const isRepair = (event: string): boolean => REPAIRS.has(event);

/** The lock's report: raised when a node connects from an address outside, cleared when that is over. Undefined without a change. Pure. */
export function lockEvent(
  before: IpLock,
  after: IpLock,
):
  | { readonly isRaised: boolean; readonly message: string; readonly details: Readonly<Record<string, string>> }
  | undefined {
  const [was, is] = [before.unauthorizedIp, after.unauthorizedIp];
  if (is !== undefined && was === undefined) {
    const blocks = after.lockedTo?.join(", ") ?? "";
    const message = `Node is locked to ${blocks} and connects from ${is}: it is held INACTIVE`;
    return { isRaised: true, message, details: { address: is, lockedTo: blocks } };
  }
  if (is !== undefined || was === undefined) return undefined;
  const why =
    after.lockedTo === undefined
      ? "its lock was removed"
      : "it connects from a permitted address, or its lock was changed";
  return { isRaised: false, message: `Node is no longer held INACTIVE: ${why}`, details: { address: was } };
}

import { isIP } from "node:net";
import { isInBlock } from "../../lib/net/cidr.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import { plainAddress, sharedPrefix } from "../../lib/net/plain-address.ts";

/** Limit of address blocks in a lock. */
export const MAX_LOCK_BLOCKS = 16;

/** IP lock in a node's record. */
export interface IpLock {
  /** Permitted source blocks; undefined if the node is not locked. */
  readonly lockedTo?: readonly string[] | undefined;
  /** Source address outside the permitted blocks, while the node connects from one. */
  readonly unauthorizedIp?: string | undefined;
}

/**
 * Returns the block for a lock to an address: an IPv4 address, or the /64 of an IPv6 address, since hosts change addresses within it. Pure.
 */
export const placeOf = (address: string): string => sharedPrefix(address);

/** Reports whether a lock permits an address. Pure. */
export function isPermitted(lockedTo: readonly string[] | undefined, address: string): boolean {
  return lockedTo === undefined || lockedTo.some((block) => isInBlock(address, withoutMapping(block)));
}

/** Converts an IPv4-mapped IPv6 block to IPv4 (RFC 4291 §2.5.5.2); addresses of nodes are never IPv4-mapped. */
function withoutMapping(block: string): string {
  const [address = "", length] = block.split("/");
  const plain = plainAddress(address);
  const prefix = length === undefined ? 128 : Number(length);
  return isIP(address) === 6 && isIP(plain) === 4 && prefix >= 96 ? `${plain}/${prefix - 96}` : block;
}

/** Returns the effective state of a node: INACTIVE while it connects from outside its lock. Pure. */
export function stateOf<S extends string>({ state, unauthorizedIp }: IpLock & { readonly state: S }): S | "INACTIVE" {
  return unauthorizedIp === undefined ? state : "INACTIVE";
}

/** Returns the sections a node receives: only `network` while it connects from outside its lock. Pure. */
export function permittedConfig(node: IpLock, config: Config): Config {
  if (node.unauthorizedIp === undefined) return config;
  return config.network === undefined ? {} : { network: config.network };
}

/** Triggers permitted for a node outside its lock: those that repair its connection. */
const REPAIR_TRIGGERS: ReadonlySet<string> = new Set(["network-status", "network-keep", "tg-ping", "tg-traceroute"]);

/** Reports whether a node outside its lock accepts a trigger. Pure. */
export const isRepair = (event: string): boolean => REPAIR_TRIGGERS.has(event);

/**
 * Returns the event of a change in the lock's state: raised when a node connects from outside its lock, cleared afterwards. Undefined
 * without a change. Pure.
 */
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

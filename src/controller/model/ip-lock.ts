import { isInBlock } from "../../lib/net/cidr.ts";
import { sharedPrefix } from "../../lib/net/plain-address.ts";

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
  return lockedTo === undefined || lockedTo.some((block) => isInBlock(address, block));
}

/** The state that a node gets: INACTIVE while it connects from an address outside its lock. Pure. */
export function stateOf<S extends string>({ state, unauthorizedIp }: IpLock & { readonly state: S }): S | "INACTIVE" {
  return unauthorizedIp === undefined ? state : "INACTIVE";
}

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

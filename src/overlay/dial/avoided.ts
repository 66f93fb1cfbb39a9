import { createSocket } from "node:dgram";
import { isIP } from "node:net";
import { isForbidden } from "../../lib/net/forbidden-address.ts";
import { isLoopback, plainAddress } from "../../lib/net/plain-address.ts";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";

/**
 * The addresses that a dial for another node does not reach, regardless of the name resolution: `reserved` are link-local, multicast and
 * metadata addresses; `own` are those and this machine's own.
 */
export type Avoided = "reserved" | "own";

/** Reports why an address is not dialled for another node, or undefined when it is. */
export async function avoidanceReason(
  avoids: Avoided | undefined,
  address: string,
  localAddresses: () => readonly string[],
): Promise<OverlayReason | undefined> {
  if (avoids === undefined) return undefined;
  if (isForbidden(address)) return "not-granted";
  if (avoids === "own" && (await isOwn(address, localAddresses))) return "literal-not-permitted";
  return undefined;
}

/** Returns the addresses that may be dialled, and the reason of the last that may not. */
export async function withoutAvoided(
  avoids: Avoided | undefined,
  addresses: readonly string[],
  localAddresses: () => readonly string[],
): Promise<{ readonly addresses: readonly string[]; readonly reason: OverlayReason | undefined }> {
  const judged = await Promise.all(
    addresses.map(async (address) => ({ address, reason: await avoidanceReason(avoids, address, localAddresses) })),
  );
  return {
    addresses: judged.flatMap(({ address, reason }) => (reason === undefined ? [address] : [])),
    reason: judged.findLast(({ reason }) => reason !== undefined)?.reason,
  };
}

/** Reports whether the kernel delivers an address to this machine, also on a link without a carrier such as an idle bridge. */
async function isOwn(address: string, localAddresses: () => readonly string[]): Promise<boolean> {
  const plain = plainAddress(address);
  if (isLoopback(plain) || localAddresses().some((own) => plainAddress(own) === plain)) return true;
  return (await sourceTowards(plain)) === plain;
}

/** Returns the address that the kernel would send from (connect(2) of a UDP socket sends nothing); to an own address it is that one. */
function sourceTowards(address: string): Promise<string | undefined> {
  const socket = createSocket(isIP(address) === 6 ? "udp6" : "udp4");
  return new Promise((resolve) => {
    const end = (source: string | undefined): void => {
      socket.close();
      resolve(source);
    };
    socket.once("error", () => end(undefined));
    socket.connect(9, address, () => end(plainAddress(socket.address().address)));
  });
}

import { addressRange } from "./cidr.ts";

/** Reports whether an address is in one of the blocks. Accepts every spelling; invalid addresses match nothing. */
export function addressFilter(block: string): (address: string) => boolean {
  const wanted = addressRange(block);
  return (address) => {
    const own = addressRange(address);
    if (wanted === undefined || own === undefined || own.low.length !== wanted.low.length) return false;
    return Buffer.compare(own.low, wanted.low) >= 0 && Buffer.compare(own.low, wanted.high) <= 0;
  };
}

import { addressRange } from "./cidr.ts";

/** Whether an address lies in a block. Blocks and addresses in any spelling; what is none is in no block. */
export function addressFilter(block: string): (address: string) => boolean {
  const wanted = addressRange(block);
  return (address) => {
    const own = addressRange(address);
    if (wanted === undefined || own === undefined || own.low.length !== wanted.low.length) return false;
    return Buffer.compare(own.low, wanted.low) >= 0 && Buffer.compare(own.low, wanted.high) <= 0;
  };
}

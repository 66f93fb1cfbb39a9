import { takeInventory } from "../../host/machine/inventory.ts";

/** Prints the inventory as one JSON object: a helper process of the agent. */
export async function run(): Promise<number> {
  process.stdout.write(`${JSON.stringify(await takeInventory(new AbortController().signal))}\n`);
  return 0;
}

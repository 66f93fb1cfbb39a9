import { afterAll } from "vitest";

/** Registers what ends the programs that the tests of the calling file share: after the last test, in reverse. */
export function fileEnd(): (end: () => unknown) => void {
  const ends: (() => unknown)[] = [];
  afterAll(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });
  return (end) => void ends.push(end);
}

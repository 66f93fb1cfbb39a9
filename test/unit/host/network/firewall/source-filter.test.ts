import { expect, test } from "vitest";
import { firewallDigest } from "../../../../../src/host/network/firewall/firewall.ts";
import { sourceFilterDriver } from "../../../../../src/host/network/firewall/source-filter.ts";

const signal = new AbortController().signal;
const TEXT = "table inet holdfast_connectors {\n}\n";

/** A machine whose nft is queried by processes. */
function driver({ isRefused = false, unsupported }: { isRefused?: boolean; unsupported?: string } = {}) {
  const ran: string[] = [];
  let isThere = false;
  const filter = sourceFilterDriver({
    tools: {
      run(file, args) {
        ran.push([file, ...args].join(" "));
        const isListing = args.includes("list");
        const isBad = isListing ? !isThere : isRefused;
        if (!isListing && !args.includes("-c") && !isBad) isThere = true;
        return Promise.resolve({
          exitCode: isBad ? 1 : 0,
          signal: undefined,
          stdout: isListing && isThere ? `table {\n\tcomment "holdfast:${firewallDigest(TEXT)}"\n}\n` : "",
          stderr: isListing ? "No such file or directory" : "Operation not permitted",
          truncated: false,
        });
      },
    },
    table: "holdfast_connectors",
    unsupported: () => unsupported,
    tables: { read: () => undefined },
  });
  return { filter, ran };
}

test("is read at once while it is neither present nor wanted", async () => {
  const { filter, ran } = driver();
  expect([await filter.observe(undefined, signal), await filter.observe(undefined, signal)]).toEqual([{}, {}]);
  expect(ran).toEqual(["nft -s list table inet holdfast_connectors"]);
  await filter.load(TEXT, signal);
  expect(await filter.observe(TEXT, signal)).toEqual({ digest: firewallDigest(TEXT) });
});

test("that cannot be loaded reports why, until another is wanted", async () => {
  const { filter, ran } = driver({ isRefused: true });
  await filter.load(TEXT, signal);
  const count = ran.length;
  expect((await filter.observe(TEXT, signal)).unusable).toContain("Operation not permitted");
  expect(ran).toHaveLength(count);
  expect(await filter.observe(`${TEXT}# other`, signal)).toEqual({});
  // It is retried in the end.
  const polls = await Promise.all(Array.from({ length: 12 }, () => filter.observe(TEXT, signal)));
  expect(polls.at(-1)).toEqual({});
});

test("is not changed by a node that does not own the machine", async () => {
  const { filter, ran } = driver({ unsupported: "another node owns this machine" });
  expect(await filter.observe(TEXT, signal)).toEqual({ unusable: "another node owns this machine" });
  expect(ran).toEqual([]);
});

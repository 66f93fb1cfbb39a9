import { execFileSync } from "node:child_process";
import { createInterface } from "node:readline";
import { watchRuleset } from "../../../src/host/network/firewall/ruleset-watch.ts";

/**
 * Runs inside a network namespace: prints each change, of the table named by its argument if any; `renew` renews, and every other line of
 * its input is passed to `nft`.
 */
const watch = watchRuleset(() => console.log("change"), process.argv[2]);
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "renew") watch.renew();
  else execFileSync("nft", [line]);
  console.log(`done ${line}`);
}
watch.close();

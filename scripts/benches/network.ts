import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { parts, type Bench } from "./bench.ts";
import { skip, type Figure } from "./figures.ts";
import { applying } from "./network/applying.ts";
import { besideNetplan } from "./network/beside-netplan.ts";

/** The network of a machine: what changing it takes, and that it is whole wherever the change is cut off. */
export const network: Bench = {
  area: "network",
  about:
    "a large network applied, changed and taken back, against ip and nft by hand and netplan try; every kill point",
  async run(options) {
    const { dir, say } = options;
    if (process.getuid?.() !== 0) return [skip("everything", "needs root, since it makes network namespaces")];
    return parts(options, {
      applying: () => applying(dir, say),
      netplan: () => besideNetplan(dir, say),
      "random pairs": async () => [await randomPairs()],
      "kill points": killPoints,
    });
  },
};

/** The property test of the section's plan: it fails with the first pair that is not settled in one go. */
async function randomPairs(): Promise<Figure> {
  const { code } = await vitest("unit", "test/unit/host/network/diff.property.test.ts");
  const what = "10,000 random pairs, planned and applied in a model: runs with anything left";
  return { what, value: code === 0 ? 0 : 1, unit: "", bar: { of: "value", most: 0 } };
}

/** The test of the kill points prints how many there were, and how they ended. */
async function killPoints(): Promise<readonly Figure[]> {
  const { code, output } = await vitest("e2e", "test/e2e/network/kill-points.test.ts");
  const [, passed = "NaN", tried = "NaN"] = /network kill points: (\d+) of (\d+) passed/.exec(output) ?? [];
  const failed = code === 0 ? Number(tried) - Number(passed) : Number.NaN;
  return [
    {
      what: "kill points, each with a restart: tried",
      value: Number(tried),
      unit: "",
      bar: { of: "value", least: 50 },
    },
    {
      what: "neither the old network nor the new one after it",
      value: failed,
      unit: "",
      bar: { of: "value", most: 0 },
    },
  ];
}

async function vitest(
  project: string,
  file: string,
): Promise<{ readonly code: number | null; readonly output: string }> {
  const env = { ...process.env, HOLDFAST_TEST_ALL: "1" };
  const child = spawn("vitest", ["run", "--project", project, file], { env, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve, reject) => child.once("error", reject).once("close", resolve));
  const [output, code] = await Promise.all([text(child.stdout), ended]);
  return { code, output };
}

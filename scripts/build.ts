// Makes the one bundle, dist/holdfast.mjs: an ES module with everything inside that runs alone on Node 26.
import { build } from "esbuild";
import { execFileSync } from "node:child_process";
import { chmodSync, readFileSync } from "node:fs";

const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
const describe = (...args: string[]): string => {
  try {
    return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return "";
  }
};
const commit = describe("rev-parse", "--short=12", "HEAD") || "unknown";
const date = describe("show", "-s", "--format=%cd", "--date=format:%Y%m%d-%H%M%S", "HEAD") || "19700101-000000";

await build({
  entryPoints: ["src/main.ts"],
  outfile: "dist/holdfast.mjs",
  bundle: true,
  platform: "node",
  target: "node26",
  format: "esm",
  sourcemap: "linked",
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: "none",
  // Packages written as CommonJS ask for `require`, which an ES module does not have by itself.
  banner: {
    js: "#!/usr/bin/env node\nimport { createRequire as holdfastCreateRequire } from 'node:module';\nconst require = holdfastCreateRequire(import.meta.url);",
  },
  define: { HOLDFAST_BUILD: JSON.stringify({ version, build: `${date}.${commit}` }) },
});
chmodSync("dist/holdfast.mjs", 0o755);

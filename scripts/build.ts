// Makes the one bundle, dist/holdfast.mjs: an ES module with everything inside that runs alone on Node 26.
import { build, type Plugin } from "esbuild";
import { execFileSync } from "node:child_process";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";

const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
const describe = (...args: string[]): string => {
  try {
    // In UTC: a build that another time zone makes later must not look older.
    const env = { ...process.env, TZ: "UTC" };
    return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], env }).trim();
  } catch {
    return "";
  }
};
const commit = describe("rev-parse", "--short=12", "HEAD") || "unknown";
const date = describe("show", "-s", "--format=%cd", "--date=format-local:%Y%m%d-%H%M%S", "HEAD") || "19700101-000000";

// A named import of `z` holds all of zod, every language included; of a namespace the bundler keeps what is used: 2 MB of an agent.
const zodAsNamespace: Plugin = {
  name: "zod-as-namespace",
  setup(bundler) {
    bundler.onLoad({ filter: /\/src\/.*\.ts$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      return { loader: "ts", contents: text.replace('import { z } from "zod";', 'import * as z from "zod";') };
    });
  },
};

// An `import` of it reads every export, and one of them is a getter that loads the whole of fetch: 5 MB of an agent.
const httpWithoutFetch: Plugin = {
  name: "http-without-fetch",
  setup(bundler) {
    bundler.onResolve({ filter: /^node:http$/ }, ({ path }) => ({ path, namespace: "builtin" }));
    bundler.onLoad({ filter: /.*/, namespace: "builtin" }, ({ path }) => ({
      contents: `module.exports = process.getBuiltinModule(${JSON.stringify(path)});`,
    }));
  },
};

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
  plugins: [zodAsNamespace, httpWithoutFetch],
  // Packages written as CommonJS ask for `require`, which an ES module does not have by itself.
  banner: {
    js: "#!/usr/bin/env node\nimport { createRequire as holdfastCreateRequire } from 'node:module';\nconst require = holdfastCreateRequire(import.meta.url);",
  },
  define: { HOLDFAST_BUILD: JSON.stringify({ version, build: `${date}.${commit}` }) },
});
// One character beyond ASCII, such as those the bundler leaves in regular expressions, and V8 keeps all of it in two bytes
// each: 2 MB of an agent.
const bundle = readFileSync("dist/holdfast.mjs", "utf8");
const escape = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
writeFileSync("dist/holdfast.mjs", bundle.replaceAll(/[^\0-\x7f]/g, escape));
chmodSync("dist/holdfast.mjs", 0o755);

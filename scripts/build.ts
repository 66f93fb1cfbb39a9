// Makes two bundles, each an ES module that runs alone on Node 26: dist/holdfast.mjs with everything inside, and dist/overlay.mjs with
// the overlay alone, which the other becomes where it lies beside it.
import { build, type BuildOptions, type Metafile, type Plugin } from "esbuild";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { brotliCompressSync } from "node:zlib";
import { readCommand } from "./command-line.ts";
import { builtinsOnFirstUse, noLogTransports, zodAsNamespace } from "./packaging/bundle-plugins.ts";
import { LASTING_PROGRAMS, START_FLAGS } from "../src/host/process/engine-flags.ts";

const USAGE = `usage: node scripts/build.ts [--out DIR] [--build ID] [--inputs FILE]

Makes two bundles, each an ES module that runs alone on Node 26: holdfast.mjs, and overlay.mjs with the overlay alone.

  --out DIR      the directory of the bundles (dist)
  --build ID     the build ID, YYYYMMDD-HHMMSS.COMMIT, instead of that of the commit
  --inputs FILE  writes the paths of the files that the bundles contain, as a JSON array`;

const { values: options } = readCommand(
  { name: "scripts/build.ts", usage: USAGE },
  {
    options: { out: { type: "string", default: "dist" }, build: { type: "string" }, inputs: { type: "string" } },
  },
);
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

// Packages ask for these at their top and use them for what is never done here: compression, files of their own.
const UNUSED_BUILTINS: ReadonlySet<string> = new Set(["assert", "zlib"]);

const builtinsNeverUsed: Plugin = {
  name: "builtins-never-used",
  setup(bundler) {
    bundler.onResolve({ filter: /^[a-z]+$/ }, ({ path, kind }) =>
      kind === "require-call" && UNUSED_BUILTINS.has(path) ? { path, namespace: "unused-builtin" } : undefined,
    );
    bundler.onLoad({ filter: /.*/, namespace: "unused-builtin" }, ({ path }) => ({
      contents: `const builtin = () => process.getBuiltinModule(${JSON.stringify(path)});
module.exports = new Proxy(function () {}, {
  get: (_, name) => builtin()[name],
  apply: (_, self, args) => builtin()(...args),
});`,
    }));
  },
};

// Packages that hardly any process needs. The bundle is one text that V8 goes through as a whole in every program, so what they add to
// it costs each of them memory: packed they are unpacked by whoever loads them, and save an overlay 5 MB. A module of our own that
// stands for a package says which parts of it are used.
const rarelyUsed = /^(@peculiar\/x509|systeminformation|prom-client|pg)$|\/s3-sdk\.ts$/;

// The SDK's default chain of credentials reads the environment and other people's files, asks other services and starts programs. A
// transfer says where its credentials come from, so the chain is a sixth of the SDK that must never run.
const noCredentialChain: Plugin = {
  name: "no-credential-chain",
  setup(bundler) {
    bundler.onResolve({ filter: /^@aws-sdk\/credential-provider-node$/ }, ({ path }) => ({
      path,
      namespace: "no-chain",
    }));
    bundler.onLoad({ filter: /.*/, namespace: "no-chain" }, () => ({
      contents: `export const defaultProvider = () => () => Promise.reject(new Error("no credentials were given"));`,
    }));
  },
};

// A namespace or an angle stands before what is no file.
const isFile = (path: string): boolean => !/^(?:[a-z-]+:|<)/.test(path);
const held = new Set<string>();
const hold = ({ outputs }: Metafile): void => {
  for (const { inputs } of Object.values(outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      if (bytesInOutput > 0 && isFile(path)) held.add(path);
    }
  }
};

const packed: Plugin = {
  name: "packed",
  setup(bundler) {
    bundler.onResolve({ filter: rarelyUsed }, ({ path, resolveDir }) => ({
      path: path.startsWith(".") ? `./${relative(process.cwd(), join(resolveDir, path))}` : path,
      namespace: "packed",
    }));
    bundler.onLoad({ filter: /.*/, namespace: "packed" }, async ({ path }) => {
      const stdin = { contents: `module.exports = require(${JSON.stringify(path)});`, resolveDir: process.cwd() };
      const { outputFiles, metafile } = await build({
        ...common,
        stdin,
        format: "cjs",
        minify: true,
        charset: "ascii",
        write: false,
        // Code that is made of a text has no `import()`.
        supported: { "dynamic-import": false },
        // Of ES modules the bundler keeps only what is used.
        ...(path.startsWith(".") ? { mainFields: ["module", "main"], plugins: [noCredentialChain] } : {}),
      });
      hold(metafile);
      const code = outputFiles[0]?.contents;
      if (code === undefined) throw new Error(`nothing was made of ${path}`);
      const text = brotliCompressSync(code).toString("base64");
      return {
        contents: `const text = process.getBuiltinModule("node:zlib").brotliDecompressSync(Buffer.from("${text}", "base64")).toString();
          const parameters = ["module", "exports", "require"];
          process.getBuiltinModule("node:vm").compileFunction(text, parameters, { filename: "${path}" })(module, exports, require);`,
      };
    });
  },
};

const common = { bundle: true, platform: "node", target: "node26", legalComments: "none", metafile: true } as const;
/** Loaded by the self-test, too, which does not run it. */
const OVERLAY = `import { run } from "./src/overlay/main.ts";
if (process.argv[2] === "overlay") process.exitCode = await run(process.argv.slice(3));`;
const bundled = (name: string, from: Pick<BuildOptions, "stdin" | "entryPoints">) =>
  build({
    ...from,
    outfile: join(options.out, name),
    ...common,
    write: false,
    format: "esm",
    sourcemap: "linked",
    minifySyntax: true,
    minifyWhitespace: true,
    // The text is a third smaller. The map beside it says what stands where in a stack.
    minifyIdentifiers: true,
    plugins: [packed, zodAsNamespace, noLogTransports, builtinsOnFirstUse, builtinsNeverUsed],
    // V8's flags hold from the first line on. Packages written as CommonJS ask for `require`, which an ES module does not have by itself.
    banner: {
      js: [
        "#!/usr/bin/env node",
        "import { createRequire as holdfastCreateRequire } from 'node:module';",
        "import { setFlagsFromString as holdfastSetFlag } from 'node:v8';",
        `if (${JSON.stringify(LASTING_PROGRAMS)}.includes(process.argv[2]))`,
        `  for (const flag of ${JSON.stringify(START_FLAGS)}) holdfastSetFlag(flag);`,
        "const require = holdfastCreateRequire(import.meta.url);",
      ].join("\n"),
    },
    define: { HOLDFAST_BUILD: JSON.stringify({ version, build: options.build ?? `${date}.${commit}` }) },
  });
const made = await Promise.all([
  bundled("overlay.mjs", { stdin: { contents: OVERLAY, resolveDir: "." } }),
  bundled("holdfast.mjs", { entryPoints: ["src/main.ts"] }),
]);
// One character beyond ASCII, such as those the bundler leaves in regular expressions, and V8 keeps all of it in two bytes
// each: 2 MB of an agent.
const escape = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
mkdirSync(options.out, { recursive: true });
for (const { path, text } of made.flatMap(({ outputFiles }) => outputFiles)) {
  const isBundle = path.endsWith(".mjs");
  // Renamed into its place, since programs may start from the one before meanwhile.
  const part = `${path}.${process.pid}`;
  writeFileSync(part, isBundle ? text.replaceAll(/[^\0-\x7f]/g, escape) : text, { mode: isBundle ? 0o755 : 0o644 });
  renameSync(part, path);
}
for (const { metafile } of made) hold(metafile);
if (options.inputs !== undefined) writeFileSync(options.inputs, `${JSON.stringify([...held].sort())}\n`);

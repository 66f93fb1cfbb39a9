// Bundles a program of a test with the build's plugins, which esbuild runs only asynchronously: ENTRY OUT.
import { build } from "esbuild";
import { builtinsOnFirstUse, noLogTransports, zodAsNamespace } from "../../scripts/packaging/bundle-plugins.ts";

const [entryPoint = "", outfile = ""] = process.argv.slice(2);
await build({
  entryPoints: [entryPoint],
  outfile,
  bundle: true,
  platform: "node",
  target: "node26",
  format: "esm",
  plugins: [zodAsNamespace, noLogTransports, builtinsOnFirstUse],
  // Packages in CommonJS call `require`, which an ES module does not have.
  banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
});

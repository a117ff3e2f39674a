// Prints the gzip size of every built file, and what the first view of each page loads.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const dist = "dist";
const manifest = JSON.parse(readFileSync(join(dist, "manifest.json"), "utf8"));
const size = (file) => gzipSync(readFileSync(join(dist, file)), { level: 9 }).length;
const kilobytes = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;

function filesOf(key, seen = new Set()) {
  const chunk = manifest[key];
  if (!chunk || seen.has(chunk.file)) return seen;
  seen.add(chunk.file);
  for (const css of chunk.css ?? []) seen.add(css);
  for (const dependency of chunk.imports ?? []) filesOf(dependency, seen);
  return seen;
}

const total = (files, extension) =>
  [...files].filter((file) => file.endsWith(extension)).reduce((sum, file) => sum + size(file), 0);

const shell = filesOf("src/main.tsx");
console.log(`shell: js ${kilobytes(total(shell, ".js"))}, css ${kilobytes(total(shell, ".css"))}`);
for (const [key, chunk] of Object.entries(manifest)) {
  if (!chunk.isDynamicEntry) continue;
  const extra = [...filesOf(key)].filter((file) => !shell.has(file));
  console.log(
    `${key}: + js ${kilobytes(total(extra, ".js"))}, css ${kilobytes(total(extra, ".css"))}`,
  );
}

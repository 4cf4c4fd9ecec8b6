#!/bin/sh
# Makes model/text.ngrams, the byte model that the crate ships, from texts that Debian 12 and rustup install:
# licences, manuals, the Rust book as text and as HTML, and the HTTP headers beside this script. Run it in the
# crate's folder. It fails if one of them is also in a text that the tests and scenarios attack.
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

for licence in Apache-2.0 GPL-2 GPL-3 LGPL-2.1 MPL-2.0 BSD; do
    cp "/usr/share/common-licenses/$licence" "$work/licence-$licence"
done
for manual in coreutils.info diffutils.info find.info-1 find.info-2 gnupg.info-1 gnupg.info-2 sed.info wget.info; do
    gzip -dc "/usr/share/info/$manual.gz" >"$work/manual-$manual"
done
cp /usr/share/perl/5.*.*/pod/perldiag.pod /usr/share/perl/5.*.*/Locale/Maketext/TPJ13.pod "$work"
book=$(rustc --print sysroot)/share/doc/rust/html/book
for page in "$book"/ch*.html; do
    # As text: without tags, with the few entities that the book uses; only the chapter itself.
    sed -n '/<main>/,/<\/main>/p' "$page" >"$work/html-$(basename "$page")"
    sed -e 's/<[^>]*>//g' -e 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g; s/&#39;/'"'"'/g' \
        "$work/html-$(basename "$page")" >"$work/text-$(basename "$page")"
done
# Of the marked-up pages a few are enough.
ls "$work"/html-* | awk 'NR % 8 != 1' | xargs rm
# Headers are short and frequent.
for copy in 1 2 3 4 5 6; do cp model/http.txt "$work/http-$copy"; done

cargo run --quiet --release -p plait-cryptanalysis --bin train -- "${1:-model/text.ngrams}" \
    tests/text/* ../../../README.md ../../../ARCHITECTURE.md ../../../docs/*.md -- "$work"/*

//! The lab as a picture: two hosts, two paths, the eavesdroppers and the injectors.

/// Draws it. Wider than high, and legible at the width of a telephone.
pub(super) fn draw(html: &mut String) {
    let host = |x: u32, name: &str, below: &str| {
        format!(
            "<rect x=\"{x}\" y=\"46\" width=\"74\" height=\"78\" rx=\"6\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"/>\
             <text x=\"{0}\" y=\"80\" text-anchor=\"middle\" font-weight=\"600\">{name}</text><text x=\"{0}\" y=\"98\" text-anchor=\"middle\">{below}</text>",
            x + 37
        )
    };
    let path = |y: u32, colour: &str, name: &str| {
        format!(
            "<line x1=\"78\" x2=\"322\" y1=\"{y}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"200\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            if y < 80 { y - 30 } else { y + 40 }
        )
    };
    // An eye that looks at the line.
    let eavesdropper = |y: u32| {
        format!(
            "<ellipse cx=\"150\" cy=\"{y}\" rx=\"13\" ry=\"8\" fill=\"var(--paper)\" stroke=\"currentColor\" stroke-width=\"1.5\"/><circle cx=\"150\" cy=\"{y}\" r=\"3.5\" fill=\"currentColor\"/>"
        )
    };
    let injector = "<rect x=\"226\" y=\"110\" width=\"16\" height=\"16\" transform=\"rotate(45 234 118)\" fill=\"var(--bad)\"/>";
    let (a, b) = (plait_report::colour(0), plait_report::colour(1));
    html.push_str("<figure class=\"topology\" id=\"topology\"><svg viewBox=\"0 0 400 190\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"client and server, path a with an eavesdropper, path b with an eavesdropper and an injector\" font-family=\"sans-serif\" font-size=\"13\" fill=\"currentColor\">");
    for part in [
        path(52, &a, "path a, trusted: 50 Mbit/s"),
        path(118, &b, "path b, untrusted: 50 Mbit/s"),
        host(4, "client", "curl"),
        host(322, "server", "HTTP"),
        eavesdropper(52),
        eavesdropper(118),
        injector.to_owned(),
    ] {
        html.push_str(&part);
    }
    html.push_str(
        "<ellipse cx=\"90\" cy=\"175\" rx=\"9\" ry=\"5.5\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"/><circle cx=\"90\" cy=\"175\" r=\"2.5\" fill=\"currentColor\"/>\
         <text x=\"104\" y=\"179\">eavesdropper</text><rect x=\"226\" y=\"170\" width=\"9\" height=\"9\" transform=\"rotate(45 230.5 174.5)\" fill=\"var(--bad)\"/><text x=\"244\" y=\"179\">injector</text></svg>\
         <figcaption>Both hosts are network namespaces of one kernel; every packet between them passes the eavesdropper of its path, and on path b the injector. Each \
         system protects what happens between <b>client</b> and <b>server</b>; neither curl nor the web server knows of it.</figcaption></figure>",
    );
}

